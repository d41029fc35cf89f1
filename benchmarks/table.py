"""Table of results for the terminal, at most 130 columns wide. Colors are used only on a terminal."""

import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import targets

WIDTH = 130
COLORS = {targets.MET: "\033[32m", targets.EVEN: "\033[33m", targets.MISSED: "\033[31m"}
PLAIN = "\033[0m"
GLUE = "\N{NO-BREAK SPACE}"  # between words that must stay on one line
HEAD = (
    "Each row: result of ampscale, and its ratios to the baseline and to other implementations; below 1, ampscale is faster.\n"
    "A ratio is a ratio of medians, ± half the interquartile range of the ratios within the rounds.\n\n"
    f"{'section':12} {'row':42} {'dtype':8} {'shape':14} {'ampscale':>9}  ratios"
)

Cell = dict[str, Any]


def text_of(row: dict[str, Any], judge: bool = False) -> str:
    """Return the text of a row; if *judge* is True, results that have targets are green, yellow or red."""
    cells = row["cells"]
    ours = cells[0]
    head = f"{row['section']:12} {row['label'][:42]:42} {row['dtype']:8} {row['shape']:14} {shown(ours, row['unit']):>9}  "
    parts = [part.replace(" ", GLUE) for part in comparisons(row)]
    lines = textwrap.wrap("   ".join(parts), WIDTH, initial_indent=head, subsequent_indent=" " * 13, break_long_words=False)
    text = "\n".join(lines or [head.rstrip()]).replace(GLUE, " ")
    return painted(text, row) if judge else text


def comparisons(row: dict[str, Any]) -> Iterator[str]:
    """Yield the ratios or values that follow a row's first number."""
    ours, *others = row["cells"]
    if "over_baseline" in ours:
        yield f"baseline {ratio(ours['over_baseline'])}"
    for other in others:
        if "absent" in other:
            yield f"{other['name']}: {other['absent']}"
        elif row["unit"] != "s":
            yield f"{other['name']} {shown(other, row['unit'])}"
        elif other["kind"] != "baseline":
            yield f"{other['name']} {ratio(ours['over'][other['name']])}"


def painted(text: str, row: dict[str, Any]) -> str:
    """Return the text of a row, with each contender or number that has a target in the color of the verdict."""
    for target in targets.TARGETS:
        if target.of == "ampscale" and list(targets.matching_rows(target, [row])):
            label = f"{target.over} " if target.over else shown(row["cells"][0], row["unit"])
            text = text.replace(label, colored(label, targets.verdict(target, row)["verdict"]), 1)
    return text


def ratio(measured: dict[str, Any]) -> str:
    """Return the text of a ratio and its spread."""
    return f"{number(measured['ratio'])}±{targets.half_range(measured['quartiles']):.2f}"


def number(value: float) -> str:
    """Return *value* with two decimals, or with two significant digits if it is below 0.1."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def shown(cell: Cell, unit: str) -> str:
    """Return the text of a contender's result."""
    if "absent" in cell:
        return "-"
    if unit == "s":
        return seconds(cell["median"])
    if unit == "B":
        return size(cell["value"])
    return f"{cell['value']:d}" if unit == "count" else f"{cell['value']:.3f}±{cell['error']:.3f}"


def seconds(value: float) -> str:
    """Return a duration in a suitable unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 0.9995:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.2g} us"


def size(value: float) -> str:
    """Return a number of bytes in KiB or MiB."""
    return f"{value / 2**20:.1f} MiB" if value >= 2**20 else f"{value / 2**10:.1f} KiB"


def verdicts(evaluated: list[dict[str, Any]]) -> str:
    """Return the table of the evaluated targets, or "" if there are none."""
    if not evaluated:
        return ""
    lines = [f"{'target':62} {'row':46} {'at most':>8} {'measured':>14}"]
    for target in evaluated:
        at_most, verdict = amount(target["at_most"], target), target["verdict"]
        measured = "-" if target["measured"] is None else f"{amount(target['measured'], target)}±{target['spread']:.2f}"
        line = f"{target['description'][:62]:62} {target['row'][-46:]:46} {at_most:>8} {measured:>14} {verdict}"
        lines.append(colored(line, verdict))
        if target["reason"]:
            lines += textwrap.wrap(target["reason"], WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def amount(value: float, target: dict[str, Any]) -> str:
    """Return the text of a bound or of a measured value: a ratio, an exponent, a number of bytes or a duration."""
    kind = target["row"].partition("/")[0]
    return {"memory": size, "first-call": seconds}.get(kind, number)(value)


def colored(text: str, verdict: str) -> str:
    """Return *text* in the color of a verdict if the output is a terminal."""
    return f"{COLORS.get(verdict, '')}{text}{PLAIN}" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def summary(report: dict[str, Any]) -> str:
    """Return the number of rows, the duration, and the number of targets by verdict."""
    verdicts = [target["verdict"] for target in report["targets"]]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    return f"{len(report['rows'])} rows in {report['seconds']} s; targets: {counts or 'not evaluated in this run'}"
