"""Generation of the results in docs/performance.md, between two comments, and of the README's sentence with figures."""

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import machine
import table
import targets

from ampscale.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
WIDTH = 140  # characters of a line on the pages
GENERATED = {  # pattern of the generated part of each page
    PAGE: re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end -->)", re.DOTALL),
    README: re.compile(r"On one core \(.*? all measurements\.", re.DOTALL),
}
QUOTED = "numpy/unscale+check/float32/100x1M"  # row that the README quotes
# Headings of the page, each with the id prefixes of its rows.
SECTIONS = {
    "NumPy": ("numpy/",),
    "AVX2": ("avx2/",),
    "torch": ("torch/",),
    "JAX": ("jax/",),
    "Paddle": ("paddle/",),
    "Two threads": ("two-threads/",),
    "First call": ("first-call/",),
    "The scale's update, and a whole step": ("update/", "step-overhead/", "step/"),
    "Statistics, and a traced step's report": ("measure/", "report/"),
    "Host reads and launches": ("launches/", "host-reads/"),
    "Memory": ("memory/",),
    "Growth": ("growth/",),
    "Simulations": ("simulation/",),
}

Report = dict[str, Any]
Row = dict[str, Any]


def update() -> None:
    """Evaluate the rows of the result files with the current targets and reasons, and write the files and the two documents."""
    for path in result_files():
        report = json.loads(path.read_text("utf-8"))
        report["targets"] = targets.evaluate(report["rows"], targets.read_reasons())
        write_atomically(path, text_of(report))
    for page, text in generated().items():
        write_atomically(page, text)


def result_files() -> list[Path]:
    """Return the committed result files. A processor can have two: one with the rows that have targets, and one with all rows."""
    return sorted(RESULTS.glob("cpu-*.json"))


def text_of(report: Report) -> str:
    """Return the JSON text of a result file, with one line for each row and each target."""
    members = []
    for name, value in report.items():
        text = json.dumps(value)
        if name in ("rows", "targets") and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        members.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def generated() -> dict[Path, str]:
    """
    Return the texts of the page and of the README, generated from the result files.

    Raises:
        ValueError: The page or the README does not have exactly one generated part.
    """
    reports = [json.loads(path.read_text("utf-8")) for path in result_files()]
    parts = {PAGE: "\n" + "\n\n".join(map(section_of, reports)) + "\n\n", README: readme_sentence(reports[0])}
    return {page: with_part(page.read_text("utf-8"), GENERATED[page], part) for page, part in parts.items()}


def with_part(text: str, pattern: re.Pattern[str], part: str) -> str:
    """Replace the only match of *pattern* in *text* by *part*."""
    changed, count = pattern.subn(lambda _: part, text)
    if count != 1:
        raise ValueError(f"the page must have one generated part, which matches {pattern.pattern!r}, got {count}")
    return changed


def readme_sentence(report: Report) -> str:
    """Return the sentence of the README that quotes one row."""
    ours = next(row for row in report["rows"] if row["id"] == QUOTED)["cells"][0]
    return (
        f"On one core ({machine.title(report['machine'])}) with numba, unscaling and checking 100\n"
        "float32 arrays of a million values takes "
        f"{table.seconds(ours['median'])}, {ours['over_baseline']['ratio']:.2f} times an in-place multiplication; "
        "[Performance](docs/performance.md) lists all measurements."
    )


def section_of(report: Report) -> str:
    """Return the section of a result file: machine, targets and tables."""
    parts = [f"## {title(report)}", machine_text(report), "### Targets", target_table(report)]
    for heading, prefixes in SECTIONS.items():
        rows = [row for row in report["rows"] if row["id"].startswith(prefixes)]
        if rows:
            parts += [f"### {heading}", "\n".join(map(comparison_table, groups_of(rows)))]
    return "\n\n".join(part.strip() for part in parts)


def title(report: Report) -> str:
    """Return the heading of a result file's section."""
    name = machine.title(report["machine"])
    return f"{name}, all rows" if report["all"] else name


def machine_text(report: Report) -> str:
    """Return the description of the machine, the date and the package versions."""
    host = report["machine"]
    before, after = report["load"]
    caches = ", ".join(f"{level} {size}" for level, size in host["caches"].items())
    versions: dict[str, set[str]] = {}
    for section_versions in report["versions"].values():
        for name, version in section_versions.items():
            versions.setdefault(name, set()).add(version)
    packages = ", ".join(f"{name} {' and '.join(sorted(numbers))}" for name, numbers in sorted(versions.items()))
    summary = (
        f"{host['cpu']}, {host['cores']} cores, caches {caches}, {host['memory_gib']} GiB, {host['system']}; "
        f"{report['date'][:10]}, {len(report['rows'])} rows in {report['seconds']} s; load {before} before and {after} after."
    )
    return "\n\n".join(textwrap.fill(text, WIDTH) for text in (summary, f"{packages}."))


def target_table(report: Report) -> str:
    """Return the table of the targets, and the reasons for those that are missed."""
    rows = []
    for target in report["targets"]:
        measured = "" if target["measured"] is None else f"{table.amount(target['measured'], target)} ± {target['spread']:.2f}"
        verdict = f"**{target['verdict']}**" if target["verdict"] == targets.MISSED else target["verdict"]
        rows.append([target["description"], f"`{target['row']}`", table.amount(target["at_most"], target), measured, verdict])
    missed = [
        f"- `{target['row']}`, {target['description']}: {target['reason']}" for target in report["targets"] if target["reason"]
    ]
    return markdown_table(["target", "row", "at most", "measured", "verdict"], rows) + "\n" + "\n".join(missed)


def groups_of(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Return lists of rows that fit into one table, in order. Rows of one table have equal units and columns."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["unit"], *columns_of(row)), []).append(row)
    return groups.values()


def columns_of(row: Row) -> list[str]:
    """Return the contenders of *row* that have a column: all except baselines and a contender that only a few rows have."""
    return [cell["name"] for cell in row["cells"] if cell.get("kind") != "baseline" and cell["name"] != "ampscale, one array"]


def comparison_table(rows: list[Row]) -> str:
    """Return a table of rows with equal columns: ampscale's result, and its ratios to the baseline and the other contenders."""
    ours, *others = columns_of(rows[0])
    has_baseline = any("over_baseline" in row["cells"][0] for row in rows)
    columns = [ours, "baseline", *others] if has_baseline else [ours, *others]
    return markdown_table(["row", "dtype", "shape", *columns], [comparison_line(row, others, has_baseline) for row in rows])


def comparison_line(row: Row, others: list[str], has_baseline: bool) -> list[str]:
    """Return the texts of a row in the table of `comparison_table`."""
    cells = {cell["name"]: cell for cell in row["cells"]}
    ours = row["cells"][0]
    texts = [row["label"], row["dtype"], row["shape"], table.shown(ours, row["unit"])]
    if has_baseline:
        texts.append(ratio_text(ours["over_baseline"]) if "over_baseline" in ours else "")
    return texts + [other_cell(row, ours, cells[name]) for name in others]


def other_cell(row: Row, ours: dict[str, Any], cell: dict[str, Any]) -> str:
    """Return the text for another contender in a line of the table, given its cell of *row* and ampscale's cell, *ours*."""
    if "absent" in cell:
        return cell["absent"]
    if row["unit"] == "s" and "over" in ours:
        return ratio_text(ours["over"][cell["name"]])
    return table.shown(cell, row["unit"])


def ratio_text(ratio: dict[str, Any]) -> str:
    """Return the text of a ratio and its spread."""
    return table.ratio(ratio).replace("±", " ± ")


def markdown_table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["-" * max(3, len(cell)) for cell in head], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"
