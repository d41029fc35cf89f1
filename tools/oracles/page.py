"""The result as a page of Markdown."""

import math
from itertools import groupby
from typing import Any

OPENING = """# Presets beside the published objects

Written by `make test-oracles`; do not edit. Each preset of `ampscale.presets` was compared with the code that it describes:
installed, or cut out of its published file and executed as it is written, or compiled from it, as the heading of each table
says. Each object took all 1024 patterns of ten steps, finite (`.`) or overflow (`x`), under every setting of its table, which
is given in the preset's words. After every step the scale in force was compared by its bits, and those counters that the
object has; where it raises, the rule must say that it `would_raise`. An empty setting is the class's own defaults against the
preset's; there one window of the default length was run as well.

optax is not here: it has no loss scaler.
"""
ABSENT = """
## Not compared

"""


def of(result: dict[str, Any]) -> str:
    """The whole page."""
    rows = result["rows"]
    compared = [row for row in rows if "mismatching" in row]
    parts = [OPENING, f"\n{totals(result)}\n", mismatches(compared), "\n## All\n"]
    parts += [table(list(group)) for _, group in groupby(compared, key=heading)]
    lines = [f"- `{name}`: {why}.\n" for name, why in result["not_compared"].items()]
    lines += [f"- {row.get('preset', row['driver'])}: {row['error']}\n" for row in rows if "error" in row]
    lines += [f"- {package}: could not be unpacked: {why}\n" for package, why in result["unpacking"].items()]
    return "".join([*parts, ABSENT, *lines])


def totals(result: dict[str, Any]) -> str:
    """One sentence on all of it."""
    rows = [row for row in result["rows"] if "mismatching" in row]
    known = sum(row["mismatching"] for row in rows if row["reason"])
    unknown = sum(wrong(row) for row in rows if not row["reason"])
    presets = len({row["preset"] for row in rows})
    classes = len({(row["package"], row["class"], row["how"]) for row in rows})
    walked = sum(trajectories(row) for row in rows)
    return (
        f"{result['date']}: {presets} presets, {classes} published objects, {len(rows)} comparisons, {walked} trajectories; "
        f"{unknown} differ without a known reason, {known} with one. {result['seconds']} s."
    )


def mismatches(rows: list[dict[str, Any]]) -> str:
    """Every comparison with a mismatch: where it first shows, and why, if that is known."""
    lines = ["\n## Mismatches\n\n", "| preset | object | setting | differing | first at | published | ampscale | reason |\n"]
    lines.append("|---|---|---|---|---|---|---|---|\n")
    for row in rows:
        for found in (row, row.get("window", {})):
            if found.get("mismatching"):
                first = found["first"]
                shown = [f"`{first['pattern'][-12:]}`", seen(first["published"]), seen(first["ampscale"])]
                cells = [
                    f"`{row['preset']}`",
                    f"{row['package']} {row['version']} {row['class']}, {row['how'] or 'as installed'}",
                ]
                cells += [settings(row["settings"]), f"{found['mismatching']} of {found['patterns']}", *shown]
                lines.append(f"| {' | '.join([*cells, escaped(row['reason']) or '**not known**'])} |\n")
    return "".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """The comparisons of one object with one preset."""
    first = rows[0]
    lines = [f"\n### `{first['preset']}`: {first['package']} {first['version']}, `{first['class']}`\n\n"]
    how = first["how"] or "as installed"
    lines.append(f"{how[0].upper()}{how[1:]}. Python {first['python']}, NumPy {first['numpy']}. ")
    lines.append(f"Compared: {', '.join(first['compared'])}.\n\n")
    lines.append("| setting | trajectories | scales met | stopping | differing |\n|---|---|---|---|---|\n")
    for row in rows:
        counts = (trajectories(row), row["scales"], row["stopping"], wrong(row))
        lines.append(f"| {settings(row['settings'])} | {' | '.join(map(str, counts))} |\n")
    return "".join(lines)


def heading(row: dict[str, Any]) -> tuple[str, ...]:
    """What the rows of one table have in common."""
    return tuple(row[name] for name in ("preset", "package", "class", "how"))


def settings(values: dict[str, Any]) -> str:
    """A setting in the preset's words."""
    return ", ".join(f"{name}={number(value)}" for name, value in values.items()) or "(defaults)"


def escaped(text: str) -> str:
    """A text in which two stars are two stars."""
    return text.replace("**", r"\*\*")


def number(value: Any) -> str:
    """A number as one would write it: powers of two from 2**13 on, and below 2**-13, as such."""
    if isinstance(value, float) and value > 0 and math.isfinite(value):
        mantissa, exponent = math.frexp(value)
        if mantissa == 0.5 and abs(exponent - 1) >= 13:
            return escaped(f"2**{exponent - 1}")
    return repr(value)


def seen(state: dict[str, Any]) -> str:
    """What was seen after a step."""
    return "raises" if state.get("stopped") else ", ".join(f"{name} {value}" for name, value in state.items())


def trajectories(row: dict[str, Any]) -> int:
    """All that were walked, with that of the default window."""
    return row["patterns"] + row.get("window", {}).get("patterns", 0)


def wrong(row: dict[str, Any]) -> int:
    """The trajectories that differ, with that of the default window."""
    return row["mismatching"] + row.get("window", {}).get("mismatching", 0)
