"""`ampscale convert`: conversion of a loss scaler's state between the checkpoints of two frameworks."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from .. import checkpoints
from ..checkpoints import FORMATS, ConversionReport, Divergence, RunLengths
from ..checkpoints.formats.locate import find_states
from ..parsing import excerpt, json_text
from .commands import Name, command, usage_errors
from .describe import counted, fold, power
from .rule_arguments import assignments, constant
from .trace_options import FILE

SHOWN = 8  # maximum number of run lengths, keys or states that are printed
INDENT = " " * 11
COUNTS = {"good_steps": "finite step", "bad_steps": "overflow"}
FORMAT = Name("format", FORMATS, nearest={"mindformers": "mindspore_update_cell"})


@command(
    "ampscale convert checkpoint.pt --to paddle --out scaler.json",
    "ampscale convert scaler.json --from megatron --to torch --set hysteresis=1",
    short_help="Convert the state of a loss scaler to another framework.",
)
@click.argument("file", metavar="IN", type=FILE)
@click.option("--from", "source", type=FORMAT, metavar="FORMAT", help="Format of the scaler in IN. [default: detect it]")
@click.option("--to", "target", required=True, type=FORMAT, metavar="FORMAT", help="Format to convert to.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write: .json, .safetensors or .pt.")
@click.option("--at", metavar="PATH", help="Path of the scaler in IN, such as optimizer.loss_scaler.0. [default: search for it]")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Constructor argument of the source, if IN does not contain it."
)
@click.option("--json", "as_json", is_flag=True, help="Print the entries and the report as JSON and nothing else.")
@click.option("--strict", is_flag=True, help="Exit with 1, and write no file, unless both scales are equal for every trace.")
def convert(
    file: Path,
    source: str | None,
    target: str,
    out: Path | None,
    at: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    strict: bool,
) -> None:
    """
    Convert the state of a loss scaler from one framework to another.

    IN is a checkpoint in JSON, safetensors, or torch's format (.pt, .pth, .bin, or Lightning's .ckpt). It may contain other
    entries; the scaler is found by its keys. FORMAT is one of ampscale, torch, paddle, mindspore, mindspore_update_cell,
    megatron, deepspeed, deepspeed_fp16_optimizer, keras, flax, jmp.

    The command prints the entries for the target, unless --out is given, and a report: what was carried over, assumed and
    changed, which arguments the target requires, and from when and in how many steps the two scales can differ, over all overflow
    traces. --set specifies constants that IN does not contain, under the names of the source: --set period=500 for jmp.
    """
    with usage_errors(ImportError, TypeError):
        entries = checkpoints.read_file(file)
        source, at = choose_state(entries, source, at)
        values = {key: constant(value) for key, value in assignments(settings, "KEY=VALUE").items()}
        saved = checkpoints.convert(entries, source, target, settings=values, at=at)
        is_rejected = strict and not saved.report.lossless
        if out is not None:
            if out.exists() and out.samefile(file):
                raise ValueError(f"--out must not be the file that is read, got {out}")
            if not is_rejected:
                checkpoints.write_file(out, saved.mapping)
    if as_json:
        click.echo(json_text({"mapping": saved.mapping, "report": document(saved.report)}, indent=2))
    else:
        if out is None:
            click.echo(json_text(saved.mapping, indent=2))
        lines = (fold(line, INDENT) for line in _lines(source, target, saved.report))
        click.echo("\n".join(lines), err=out is None)
    if is_rejected:
        raise SystemExit(1)


def choose_state(entries: Any, source: str | None, at: str | None) -> tuple[str, str | None]:
    """
    Return the format and the path of the only scaler state in a checkpoint.

    If there is no state of the format *source*, return the arguments: `checkpoints.convert` then reports the missing keys.
    """
    formats = FORMATS.values() if source is None else [FORMATS[source]]
    states = find_states(formats, entries, at)
    if len(states) > 1:
        choices = []
        for name, path in states[:SHOWN]:
            from_option = f"--from {name}" if source is None else ""
            at_option = f"--at {shlex.quote(path)}" if at is None else ""
            choices.append(f"{from_option} {at_option}".strip())
        more = f", and {len(states) - SHOWN} more" if len(states) > SHOWN else ""
        raise ValueError(f"the file contains {len(states)} scaler states; choose one with {', or '.join(choices)}{more}")
    if states:
        return states[0]
    if source is None:
        location = "" if at is None else f" at {excerpt(at)}"
        remedy = "--from FORMAT reports which keys are missing"
        raise ValueError(f"the file contains no state of a known format{location} (a disabled scaler saves none); {remedy}")
    return source, at


def document(report: ConversionReport) -> dict[str, Any]:
    """Return a report as JSON-serializable values. An unlimited number of steps is the string "without end"."""
    divergence = report.divergence
    source_growth, target_growth = report.growth
    endless = None if divergence.endless is None else {"lead": divergence.endless[0], "cycle": divergence.endless[1]}
    return {
        "lossless": report.lossless,
        "at": report.source.at,
        "carried": _state(report),
        "assumed": dict(report.source.assumed),
        "ignored": list(report.source.ignored),
        "dropped": {name: {"was": old, "is": new} for name, (old, new) in report.dropped.items()},
        "settings": dict(report.settings),
        "taken": report.taken,
        "rule": asdict(report.target.rule),
        "next_growth": {"source": source_growth, "target": target_growth},
        "divergence": {
            "first": divergence.first,
            "steps": "without end" if divergence.steps == math.inf else divergence.steps,
            "endless": endless,
            "searched": divergence.searched,
        },
    }


def _lines(source: str, target: str, report: ConversionReport) -> Iterator[str]:
    """Yield the lines of a report."""
    path = f", at {report.source.at}" if report.source.at else ""
    yield f"{source}{path} -> {target}"
    yield f"carried    {', '.join(_carried(report)) or 'nothing'}"
    yield from (f"assumed    {name} = {value!r}" for name, value in report.source.assumed.items())
    yield from (f"changed    {name}: was {old!r}, is {new!r}" for name, (old, new) in report.dropped.items())
    if report.source.ignored:
        shown = ", ".join(map(str, report.source.ignored[:SHOWN]))
        more = len(report.source.ignored) - SHOWN
        others = f" and {more} more" if more > 0 else ""
        yield f"ignored    {shown}{others}: outside the scaler"
    if report.settings:
        yield f"construct  {', '.join(f'{name}={value!r}' for name, value in report.settings.items())}"
    yield f"load       {report.taken}"
    yield f"growth     {_growth(*report.growth)}"
    yield from _divergence(report.divergence)


def _carried(report: ConversionReport) -> Iterator[str]:
    """Yield the carried values as texts, such as "1,234 finite steps"."""
    state = _state(report)
    if "scale" in state:
        yield f"scale {power(state['scale'])}"
    yield from (counted(state[name], what) for name, what in COUNTS.items() if name in state)


def _growth(source: int | None, target: int | None) -> str:
    """Describe the next growths of the source and the target, given the number of finite steps to each; None for never."""
    if source is None and target is None:
        return "without overflows neither scale grows"
    if target is None:
        return "without overflows only the source's scale grows"
    if source is None:
        return "without overflows only the target's scale grows"
    shift = "as before"
    if target != source:
        shift = f"{counted(abs(target - source), 'step')} {'late' if target > source else 'early'}"
    return f"without overflows the scale grows after {counted(target, 'step')}, {shift}"


def _divergence(divergence: Divergence) -> Iterator[str]:
    """Yield lines that describe when, and in how many steps, the two scales can differ."""
    if divergence.steps == 0:
        yield "divergence none: both scales are equal for every overflow trace"
        return
    if divergence.first is None:
        yield f"divergence unknown; none up to step {divergence.searched:,} for any overflow trace"
        return
    yield f"divergence earliest after {runs_text(divergence.first) or 'no step'}"
    if divergence.endless is not None:
        lead, cycle = divergence.endless
        yield f"differing  without end: for example after {runs_text(lead) or 'no step'}, then repeatedly {runs_text(cycle)}"
    elif divergence.steps is None:
        yield "differing  an unknown number of steps"
    else:
        yield f"differing  at most {counted(int(divergence.steps), 'step')} of a run"


def runs_text(trace: RunLengths) -> str:
    """Return an overflow trace as text, such as "766 finite steps, 1 overflow"."""
    texts = [counted(steps, "finite step" if symbol == "." else "overflow") for symbol, steps in trace[:SHOWN]]
    if more := sum(run.steps for run in trace[SHOWN:]):
        texts.append(f"and {counted(more, 'more step')}")
    return ", ".join(texts)


def _state(report: ConversionReport) -> dict[str, Any]:
    """Return the values of the source's state that the target keeps, by name."""
    state = report.source.state._asdict()
    return {name: value.item() for name, value in state.items() if value is not None and name not in report.dropped}
