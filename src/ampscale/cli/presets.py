"""`ampscale presets`: table of the published scalers, or a description of one of them."""

import inspect
import json
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click

from ..core.rule import LossScaleRule
from ..presets import LARGEST, PRESETS, TINY, Preset
from ..simulation.identification.identify import defaults_of
from .commands import JSON, Name, command
from .describe import fold, power, sentences

COLUMNS = "{:<26} {:>5} {:>8} {:>5} {:>4} {:>2} {:<5} {:>4} {:>5} {}"
TITLES = ("", "start", "up", "every", "down", "at", "reset", "min", "max", "also")
LEGEND = """
up, every  factor of a growth, and the number of finite steps in a row before it
down, at   factor (x) or divisor (/) of a backoff, and the number of overflows
           that it takes; %: a share of the steps
reset      resets the overflow count: f finite step, g growth, b backoff
min, max   bounds of a backoff and of a growth; tiny: the smallest normal
           float32, max: the largest
also       i: can grow to infinity; l: grows later after the start and after an
           overflow; d: the scale is a float64; f: factors in float64; e: raises
           an error; b: blocks changes at the bounds; p: pending scale, applied
           one step later; w: warmup factor"""
PRESET = Name("preset", PRESETS, "ampscale presets lists all")


@command("ampscale presets deepspeed", "ampscale presets torch --json", short_help="List the published scalers, or describe one.")
@click.argument("name", required=False, type=PRESET)
@JSON
def presets(name: str | None, as_json: bool) -> None:
    """List the published scalers and their constants, or describe the preset NAME in sentences."""
    if as_json:
        document = list(map(_document, PRESETS.values())) if name is None else _document(PRESETS[name])
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        click.echo(table() if name is None else explained(PRESETS[name]))


def table() -> str:
    """Return a table with a line for each project and for each of its presets, followed by an explanation of the columns."""
    lines = [COLUMNS.format(*TITLES)]
    for heading, group in groupby(PRESETS.values(), lambda preset: f"{preset.project} {preset.version}"):
        lines.append(heading)
        lines += [COLUMNS.format("  " + preset.name, *_cells(preset)).rstrip() for preset in group]
    return "\n".join([*lines, LEGEND])


def explained(preset: Preset) -> str:
    """Return a description of a preset: its source, its behavior and its parameters."""
    settings = ", ".join(f"{name}={default}" for name, default in defaults_of(preset.rule).items())
    head = (f"{preset.name}: {preset.class_name}", f"{preset.project} {preset.version}, {preset.source_file}")
    notes = (inspect.getdoc(preset.rule) or "").partition(">>> ")[0].strip().split("\n\n")
    facts = [f"- {sentence}" for sentence in sentences(preset.rule())]
    call = fold(f"presets.{preset.name}({settings})", "  ")
    folded_head = "\n".join(fold(line, "  ") for line in head)
    folded_facts = "\n".join(fold(fact, "  ") for fact in facts)
    return "\n\n".join([folded_head, *map(fold, notes), folded_facts, call])


def _document(preset: Preset) -> dict[str, Any]:
    names = ("name", "project", "version", "class_name", "source_file", "summary")
    return {
        **{name: getattr(preset, name) for name in names},
        "parameters": defaults_of(preset.rule),
        "rule": asdict(preset.rule()),
        "words": list(sentences(preset.rule())),
    }


def _cells(preset: Preset) -> tuple[str, ...]:
    rule = preset.rule()
    grows = rule.growth_factor > 1
    down = f"/{power(rule.backoff_divisor)}" if rule.divide_on_backoff else f"x{power(rule.backoff_factor)}"
    counts_overflows = "hysteresis" in preset.parameters or rule.overflow_tolerance is not None
    resets = "".join(event[0] for event in ("finite", "growth", "backoff") if event in rule.reset_bad_steps_on)
    return (
        power(rule.init_scale),
        f"x{power(rule.growth_factor)}" if grows else "-",
        str(rule.growth_interval) if grows else "-",
        down if rule.backoff_factor < 1 else "-",
        str(rule.hysteresis) if rule.overflow_tolerance is None else "%",
        resets if counts_overflows else "",
        _bound(rule.min_scale),
        _bound(rule.max_scale),
        _also(rule),
    )


def _bound(value: float | None) -> str:
    return "-" if value is None else {TINY: "tiny", LARGEST: "max"}.get(value, power(value))


def _also(rule: LossScaleRule) -> str:
    """Return the letters for constants without a column of their own; see LEGEND."""
    marks = {
        "i": not rule.skip_infinite_growth and rule.max_scale is None and rule.growth_factor > 1,
        "l": rule.initial_good_steps < 0,
        "d": rule.dtype == "float64",
        "f": rule.float64_factor,
        "e": rule.can_raise,
        "b": rule.block_at_bounds,
        "p": rule.delayed_update,
        "w": rule.warmup_growth_factor is not None,
    }
    return "".join(mark for mark, applies in marks.items() if applies)
