"""
What docs/performance.md shows of a run: blocks between two comments, made from the run's file, so that the two cannot disagree.

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


def bring_up_to_date() -> None:
    """Judges the rows of the file anew, with the bounds and reasons of today, and writes the blocks of the page."""
    report = json.loads(SHOWN.read_text("utf-8"))
    report["targets"] = targets.judged(report["rows"], targets.read_reasons())
    write_atomically(SHOWN, text_of(report))
    write_atomically(PAGE, brought_up_to_date(PAGE.read_text("utf-8"), report))


def text_of(report: Report) -> str:
    """The file of a run: JSON with a line for each row and each target."""
    members = []
    for name, value in report.items():
        told = json.dumps(value)
        if name in ("rows", "targets") and value:
            told = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        members.append(f" {json.dumps(name)}: {told}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def brought_up_to_date(page: str, report: Report) -> str:
    """
    The page with its blocks as *report* has them.

    Raises:
        ValueError: The page has a block that nobody makes, or lacks one.
    """
    names = [name for _, name, _ in BLOCK.findall(page)]
    if sorted(names) != sorted(BLOCKS):
        raise ValueError(f"the page must have each of the blocks {', '.join(BLOCKS)} once, got {', '.join(names)}")
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]](report).strip()}\n\n{found[3]}", page)


def machine(report: Report) -> str:
    """Where and when, and with which versions."""
    told = report["machine"]
    caches = ", ".join(f"{level} {size}" for level, size in told["caches"].items())
    versions: dict[str, set[str]] = {}
    for found in report["versions"].values():
        for name, version in found.items():
            versions.setdefault(name, set()).add(version)
    used = ", ".join(f"{name} {' and '.join(sorted(those))}" for name, those in sorted(versions.items()))
    where = (
        f"{told['cpu']}, {told['cores']} cores, caches {caches}, {told['memory_gib']} GiB, {told['system']}; "
        f"{report['date'][:10]}, {len(report['rows'])} rows in {report['seconds']} seconds."
    )
    return "\n\n".join(textwrap.fill(text, WIDTH) for text in (where, f"{used}."))


def bounds(report: Report) -> str:
    """The targets, and the reasons of those that are missed."""
    rows = []
    for one in report["targets"]:
        measured = "" if one["measured"] is None else f"{table.amount(one['measured'], one)} ± {one['spread']:.2f}"
        verdict = f"**{one['verdict']}**" if one["verdict"] == targets.MISSED else one["verdict"]
        rows.append([one["words"], f"`{one['row']}`", table.amount(one["at_most"], one), measured, verdict])
    missed = [f"- `{one['row']}`, {one['words']}: {one['reason']}" for one in report["targets"] if one["reason"]]
    return tabled(["target", "row", "at most", "measured", "verdict"], rows) + "\n" + "\n".join(missed)


def section(name: str) -> Callable[[Report], str]:
    """The rows of a section, those that write and those that read in tables of their own, since their rivals differ."""

    def block(report: Report) -> str:
        mine = [row for row in report["rows"] if row["section"] == name and row["id"].startswith(f"{name}/")]
        return "\n".join(compared(rows) for rows in alike(mine))

    return block


def starting(*beginnings: str) -> Callable[[Report], str]:
    """The rows whose ids begin so."""

    def block(report: Report) -> str:
        return "\n".join(compared(rows) for rows in alike([row for row in report["rows"] if row["id"].startswith(beginnings)]))

    return block


def alike(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Rows that have mostly the same contenders, in order."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = tuple(
            cell["name"] for cell in row["cells"] if cell["name"] != "ampscale, one array" and cell.get("kind") != "floor"
        )
        found.setdefault((row["unit"], *key), []).append(row)
    return found.values()


def compared(rows: list[Row]) -> str:
    """A table of rows with the same contenders: what ours takes, and its ratio to the floor and to each other."""
    ours, *others = [
        cell["name"] for cell in rows[0]["cells"] if cell.get("kind") != "floor" and cell["name"] != "ampscale, one array"
    ]
    floored = any("over_floor" in row["cells"][0] for row in rows)
    head = ["row", "dtype", "shape", ours, *["floor"] * floored, *others]
    return tabled(head, [line(row, others, floored) for row in rows])


def line(row: Row, others: list[str], floored: bool) -> list[str]:
    """A row of such a table."""
    cells = {cell["name"]: cell for cell in row["cells"]}
    ours = row["cells"][0]
    found = [row["what"], row["dtype"], row["shape"], table.shown(ours, row["unit"])]
    if floored:
        found.append(told(ours["over_floor"]) if "over_floor" in ours else "")
    return found + [other(row, ours, cells[name]) for name in others]


def other(row: Row, ours: dict[str, Any], cell: dict[str, Any]) -> str:
    """What stands in the column of another contender."""
    if "absent" in cell:
        return cell["absent"]
    return told(ours["over"][cell["name"]]) if row["unit"] == "s" and "over" in ours else table.shown(cell, row["unit"])


def told(ratio: dict[str, Any]) -> str:
    """A ratio and its spread."""
    return table.ratio(ratio).replace("±", " ± ")


def tabled(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table of Markdown."""
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
