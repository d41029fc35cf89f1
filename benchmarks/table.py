"""The table on the terminal: a row in a line or two, at most 130 columns wide; colours on a terminal alone."""

import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import targets

WIDTH = 130
COLOURS = {targets.MET: "\033[32m", targets.EVEN: "\033[33m", targets.MISSED: "\033[31m"}
PLAIN = "\033[0m"
GLUE = "\N{NO-BREAK SPACE}"  # between words that stay on one line
HEAD = (
    "A row: what ampscale takes; then that as a ratio to the floor and to each rival, below 1 where ampscale is ahead.\n"
    "A ratio is one of medians; after ± stands half the interquartile range of the ratios within one round.\n\n"
    f"{'section':12} {'what':42} {'dtype':8} {'shape':14} {'ampscale':>9}  ratios"
)

Cell = dict[str, Any]


def row(row: dict[str, Any], judge: bool = False) -> str:
    """A row to be read; its targets in green, yellow or red."""
    cells = row["cells"]
    ours = cells[0]
    head = f"{row['section']:12} {row['what'][:42]:42} {row['dtype']:8} {row['shape']:14} {shown(ours, row['unit']):>9}  "
    parts = [part.replace(" ", GLUE) for part in comparisons(row)]
    lines = textwrap.wrap("   ".join(parts), WIDTH, initial_indent=head, subsequent_indent=" " * 13, break_long_words=False)
    text = "\n".join(lines).replace(GLUE, " ") if lines else head.rstrip()
    return painted(text, row) if judge else text


def comparisons(row: dict[str, Any]) -> Iterator[str]:
    """What stands behind a row's first number."""
    ours, *others = row["cells"]
    if "over_floor" in ours:
        yield f"floor {ratio(ours['over_floor'])}"
    for other in others:
        if "absent" in other:
            yield f"{other['name']}: {other['absent']}"
        elif row["unit"] != "s":
            yield f"{other['name']} {shown(other, row['unit'])}"
        elif other["kind"] != "floor":
            yield f"{other['name']} {ratio(ours['over'][other['name']])}"


def painted(text: str, row: dict[str, Any]) -> str:
    """With the numbers that targets bind in the colour of their verdict, on a terminal."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    for target in targets.TARGETS:
        if target.of == "ampscale" and list(targets.bound(target, [row])):
            verdict = targets.verdict(target, row)["verdict"]
            words = f"{target.over} " if target.over else shown(row["cells"][0], row["unit"])
            text = text.replace(words, f"{COLOURS.get(verdict, '')}{words}{PLAIN}", 1)
    return text


def ratio(found: dict[str, Any]) -> str:
    """A ratio and its spread, in as many digits as it has."""
    return f"{number(found['ratio'])}±{targets.half(found['quartiles']):.2f}"


def number(value: float) -> str:
    """Two digits after the point, or three that count."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def shown(cell: Cell, unit: str) -> str:
    """What a contender takes."""
    if "absent" in cell:
        return "-"
    if unit == "s":
        return seconds(cell["median"])
    if unit == "B":
        return size(cell["value"])
    return f"{cell['value']:d}" if unit == "count" else f"{cell['value']:.3f}±{cell['error']:.3f}"


def seconds(value: float) -> str:
    """In the unit that suits it."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 0.9995:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.2g} us"


def size(value: float) -> str:
    """Bytes, in the unit that suits them."""
    return f"{value / 2**20:.1f} MiB" if value >= 2**20 else f"{value / 2**10:.1f} KiB"


def verdicts(judged: list[dict[str, Any]]) -> str:
    """The targets: what was wanted, and what came of it."""
    if not judged:
        return ""
    lines = [f"{'target':62} {'row':46} {'at most':>8} {'measured':>10}"]
    for one in judged:
        measured = "-" if one["measured"] is None else f"{amount(one['measured'], one)}±{one['spread']:.2f}"
        line = f"{one['words'][:62]:62} {one['row'][-46:]:46} {amount(one['at_most'], one):>8} {measured:>14} {one['verdict']}"
        lines.append(coloured(line, one["verdict"]))
        if one["reason"]:
            lines += textwrap.wrap(one["reason"], WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def amount(value: float, target: dict[str, Any]) -> str:
    """A bound or what was measured: bytes where the row is of memory."""
    return size(value) if target["row"].startswith("memory/") else number(value)


def coloured(line: str, verdict: str) -> str:
    """In the colour of a verdict, on a terminal."""
    return f"{COLOURS.get(verdict, '')}{line}{PLAIN}" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else line


def summary(report: dict[str, Any]) -> str:
    """How many rows there are, how long they took, and how many targets are met."""
    told = [one["verdict"] for one in report["targets"]]
    counted = ", ".join(f"{told.count(verdict)} {verdict}" for verdict in dict.fromkeys(told))
    return f"{len(report['rows'])} rows in {report['seconds']} s; targets: {counted or 'none are judged in this run'}"
