"""
Generation of the tables in docs/performance.md. They are blocks between two comments, generated from the result file of a run:

    <!-- bench: torch -->
    ...
    <!-- end -->
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import table
import targets

from ampscale.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
SHOWN = ROOT / "benchmarks" / "results" / "cpu-intel-xeon.json"
WIDTH = 140  # of the page's lines
BLOCK = re.compile(r"(<!-- bench: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Report = dict[str, Any]
Row = dict[str, Any]


def update() -> None:
    """Evaluate the rows of the result file with the current targets and reasons, and write the file and the page."""
    report = json.loads(SHOWN.read_text("utf-8"))
    report["targets"] = targets.judged(report["rows"], targets.read_reasons())
    write_atomically(SHOWN, text_of(report))
    write_atomically(PAGE, updated(PAGE.read_text("utf-8"), report))


def text_of(report: Report) -> str:
    """Return the JSON text of a result file, with one line for each row and each target."""
    members = []
    for name, value in report.items():
        text = json.dumps(value)
        if name in ("rows", "targets") and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        members.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def updated(page: str, report: Report) -> str:
    """
    Return *page* with its blocks generated from *report*.

    Raises:
        ValueError: The page has an unknown block, or lacks one.
    """
    names = [name for _, name, _ in BLOCK.findall(page)]
    if sorted(names) != sorted(BLOCKS):
        raise ValueError(f"the page must have each of the blocks {', '.join(BLOCKS)} once, got {', '.join(names)}")
    return BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](report).strip()}\n\n{match[3]}", page)


def machine(report: Report) -> str:
    """Return the description of the machine, the date and the package versions."""
    host = report["machine"]
    caches = ", ".join(f"{level} {size}" for level, size in host["caches"].items())
    versions: dict[str, set[str]] = {}
    for section_versions in report["versions"].values():
        for name, version in section_versions.items():
            versions.setdefault(name, set()).add(version)
    packages = ", ".join(f"{name} {' and '.join(sorted(numbers))}" for name, numbers in sorted(versions.items()))
    summary = (
        f"{host['cpu']}, {host['cores']} cores, caches {caches}, {host['memory_gib']} GiB, {host['system']}; "
        f"{report['date'][:10]}, {len(report['rows'])} rows in {report['seconds']} seconds."
    )
    return "\n\n".join(textwrap.fill(text, WIDTH) for text in (summary, f"{packages}."))


def bounds(report: Report) -> str:
    """Return the table of the targets, and the reasons for those that are missed."""
    rows = []
    for target in report["targets"]:
        measured = "" if target["measured"] is None else f"{table.amount(target['measured'], target)} ± {target['spread']:.2f}"
        verdict = f"**{target['verdict']}**" if target["verdict"] == targets.MISSED else target["verdict"]
        rows.append([target["description"], f"`{target['row']}`", table.amount(target["at_most"], target), measured, verdict])
    missed = [
        f"- `{target['row']}`, {target['description']}: {target['reason']}" for target in report["targets"] if target["reason"]
    ]
    return tabled(["target", "row", "at most", "measured", "verdict"], rows) + "\n" + "\n".join(missed)


def section(name: str) -> Callable[[Report], str]:
    """Return a function that generates the tables of a section, one for each set of contenders."""

    def block(report: Report) -> str:
        own_rows = [row for row in report["rows"] if row["section"] == name and row["id"].startswith(f"{name}/")]
        return "\n".join(compared(rows) for rows in grouped(own_rows))

    return block


def starting(*beginnings: str) -> Callable[[Report], str]:
    """Return a function that generates the tables of the rows whose ids start with one of *beginnings*."""

    def block(report: Report) -> str:
        return "\n".join(compared(rows) for rows in grouped([row for row in report["rows"] if row["id"].startswith(beginnings)]))

    return block


def grouped(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Return lists of rows with the same unit and the same contenders, in order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = tuple(
            cell["name"] for cell in row["cells"] if cell["name"] != "ampscale, one array" and cell.get("kind") != "baseline"
        )
        groups.setdefault((row["unit"], *key), []).append(row)
    return groups.values()


def compared(rows: list[Row]) -> str:
    """Return a table of rows with the same contenders: ampscale's result, and its ratios to the baseline and to the others."""
    ours, *others = [
        cell["name"] for cell in rows[0]["cells"] if cell.get("kind") != "baseline" and cell["name"] != "ampscale, one array"
    ]
    has_baseline = any("over_baseline" in row["cells"][0] for row in rows)
    head = ["row", "dtype", "shape", ours, *["baseline"] * has_baseline, *others]
    return tabled(head, [line(row, others, has_baseline) for row in rows])


def line(row: Row, others: list[str], has_baseline: bool) -> list[str]:
    """Return a row of such a table."""
    cells = {cell["name"]: cell for cell in row["cells"]}
    ours = row["cells"][0]
    texts = [row["label"], row["dtype"], row["shape"], table.shown(ours, row["unit"])]
    if has_baseline:
        texts.append(ratio_text(ours["over_baseline"]) if "over_baseline" in ours else "")
    return texts + [other(row, ours, cells[name]) for name in others]


def other(row: Row, ours: dict[str, Any], cell: dict[str, Any]) -> str:
    """Return the text in the column of another contender."""
    if "absent" in cell:
        return cell["absent"]
    return ratio_text(ours["over"][cell["name"]]) if row["unit"] == "s" and "over" in ours else table.shown(cell, row["unit"])


def ratio_text(ratio: dict[str, Any]) -> str:
    """Return the text of a ratio and its spread."""
    return table.ratio(ratio).replace("±", " ± ")


def tabled(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["-" * max(3, len(cell)) for cell in head], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


BLOCKS: dict[str, Callable[[Report], str]] = {
    "machine": machine,
    "targets": bounds,
    "numpy": section("numpy"),
    "torch": section("torch"),
    "jax": section("jax"),
    "paddle": section("paddle"),
    "two-threads": section("two-threads"),
    "steps": starting("update/", "step-overhead/", "step/"),
    "counts": starting("launches/", "host-reads/"),
    "memory": starting("memory/"),
    "growth": starting("growth/"),
    "simulation": starting("simulation/"),
}
