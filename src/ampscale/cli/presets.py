"""`ampscale presets`: the published scalers side by side, or one of them in words."""

import inspect
import json
import textwrap
from dataclasses import asdict
from typing import Any

import click

from ..core.rule import LossScaleRule
from ..parsing import excerpt
from ..presets import LARGEST, PRESETS, TINY, Preset
from .describe import power, sentences

COLUMNS = "{:<26} {:>5} {:>7} {:>5} {:>4} {:>2} {:<6} {:>6} {:>5}  {}"
TITLES = ("", "start", "up", "every", "down", "at", "forget", "floor", "cap", "also")
LEGEND = """
up, every   what a growth multiplies by, at how many finite steps in a row
down, at    what a backoff multiplies by (x) or divides by (/), at how many overflows
forget      what makes it forget overflows: f finite step, g growth, b backoff
floor, cap  what a backoff and a growth do not pass: tiny is the smallest normal
            float32, max the largest
also        unguarded: grows to infinity; late: the first window is longer; wide:
            factors in float64; gate, stops, lag, first: ampscale presets NAME"""


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def presets(name: str | None, as_json: bool) -> None:
    """List the published scalers with the constants on which they differ, or say one in words."""
    if name is not None and name not in PRESETS:
        raise click.BadParameter(f"a preset must be one of {', '.join(PRESETS)}, got {excerpt(name)}", param_hint="NAME")
    chosen = list(PRESETS.values()) if name is None else [PRESETS[name]]
    if as_json:
        found = [_document(preset) for preset in chosen]
        click.echo(json.dumps(found if name is None else found[0], indent=2, allow_nan=False))
    elif name is None:
        click.echo(table())
    else:
        click.echo(explained(chosen[0]))


def table() -> str:
    """All presets, one a line, project by project, and what the columns mean."""
    lines, heading = [COLUMNS.format(*TITLES)], ""
    for preset in PRESETS.values():
        if heading != f"{preset.project} {preset.version}":
            heading = f"{preset.project} {preset.version}"
            lines.append(heading)
        lines.append(COLUMNS.format("  " + preset.name, *_cells(preset)).rstrip())
    return "\n".join([*lines, LEGEND])


def explained(preset: Preset) -> str:
    """One preset: whose it is, what it does, and what it lets one set."""
    settings = ", ".join(f"{each.name}={each.default}" for each in _parameters(preset))
    notes = (inspect.getdoc(preset.rule) or "").partition(">>> ")[0].strip().splitlines()
    facts = [f"- {sentence}" for sentence in sentences(preset.rule())]
    lines = [
        f"{preset.name}: {preset.class_name}",
        f"{preset.project} {preset.version}, {preset.source_file}",
        "",
        *(line for note in notes for line in textwrap.wrap(note, 80) or [""]),
        "",
        *(line for fact in facts for line in textwrap.wrap(fact, 80, subsequent_indent="  ")),
        "",
        *textwrap.wrap(f"presets.{preset.name}({settings})", 80, subsequent_indent="  "),
    ]
    return "\n".join(lines)


def _parameters(preset: Preset) -> list[inspect.Parameter]:
    return list(inspect.signature(preset.rule).parameters.values())


def _document(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "project": preset.project,
        "version": preset.version,
        "class_name": preset.class_name,
        "source_file": preset.source_file,
        "summary": preset.summary,
        "parameters": {each.name: each.default for each in _parameters(preset)},
        "rule": asdict(preset.rule()),
        "words": list(sentences(preset.rule())),
    }


def _cells(preset: Preset) -> tuple[str, ...]:
    rule = preset.rule()
    moves = rule.growth_factor > 1
    down = f"/{power(rule.backoff_divisor)}" if rule.divide_on_backoff else f"x{power(rule.backoff_factor)}"
    patient = "hysteresis" in preset.parameters or rule.overflow_tolerance is not None
    return (
        power(rule.init_scale),
        f"x{power(rule.growth_factor)}" if moves else "-",
        str(rule.growth_interval) if moves else "-",
        down if rule.backoff_factor < 1 else "-",
        str(rule.hysteresis) if rule.overflow_tolerance is None else "%",
        "".join(event[0] for event in ("finite", "growth", "backoff") if event in rule.reset_bad_steps_on) if patient else "",
        _bound(rule.min_scale),
        _bound(rule.max_scale),
        ", ".join(_also(rule)),
    )


def _bound(value: float | None) -> str:
    if value is None:
        return "-"
    named = {TINY: "tiny", LARGEST: "max"}
    return named[value] if value in named else power(value)


def _also(rule: LossScaleRule) -> list[str]:
    """What a rule has beside the columns."""
    said = {
        "unguarded": not rule.skip_infinite_growth and rule.max_scale is None and rule.growth_factor > 1,
        "late": rule.initial_good_steps < 0,
        "float64": rule.dtype == "float64",
        "wide": rule.float64_factor,
        "block_at_bounds": rule.block_at_bounds,
        "raises": rule.can_raise,
        "delayed_update": rule.delayed_update,
        "first": rule.warmup_growth_factor is not None,
    }
    return [word for word, true in said.items() if true]
