"""`ampscale convert`: the state of a scaler from one framework's checkpoint for another framework's scaler."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..parsing import excerpt, json_text
from .describe import counted, power
from .rule_arguments import constant

if TYPE_CHECKING:  # imported when the command runs
    from ..checkpoints import Checkpoint, ConversionReport, Divergence, RunLengths

SHOWN = 8  # runs of a trace that are spelled out, and keys of a list


@click.command()
@click.argument("file", metavar="IN", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--from", "source", required=True, metavar="FORMAT", help="What has saved IN.")
@click.option("--to", "target", required=True, metavar="FORMAT", help="What is to go on.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write: .json, .safetensors, .pt.")
@click.option("--at", metavar="PATH", help="Where in IN the scaler is: optimizer.loss_scaler.0; else it is looked for.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="What the scaler of IN was constructed with.")
@click.option("--json", "as_json", is_flag=True, help="Print entries and report as JSON, and nothing else.")
@click.option("--strict", is_flag=True, help="Exit with 1 unless the target is proven to go on alike whatever comes.")
def convert(
    file: Path,
    source: str,
    target: str,
    out: Path | None,
    at: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    strict: bool,
) -> None:
    """
    Convert the state of a loss scaler from one framework to another.

    IN is a checkpoint in JSON, safetensors, or torch's own format (.pt, .pth, .bin), alone or with all else that was saved. Its
    scaler is looked for by its keys. FORMAT is one of ampscale, torch, paddle, mindspore, mindspore_update_cell, megatron,
    deepspeed, deepspeed_fp16_optimizer, keras, flax, jmp.

    Prints the entries for the target, unless they are written to --out, and a report: what was carried, assumed and dropped,
    what to construct the target with, and how far the two can part, over all sequences of overflows. Constants that IN does
    not hold are set under the scaler's own names: --set period=500 for jmp.
    """
    from .. import checkpoints

    try:
        entries = checkpoints.read_file(file)
        saved = checkpoints.convert(entries, source, target, settings=dict(map(_setting, settings)), at=at)
        if out is not None:
            _check_other(file, out)
            checkpoints.write_file(out, saved.mapping)
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json_text({"mapping": saved.mapping, "report": described(saved.report)}, indent=2))
    else:
        if out is None:
            click.echo(json_text(saved.mapping, indent=2))
        click.echo("\n".join(_lines(source, target, saved.report)), err=out is None)
    if strict and not saved.report.lossless:
        raise SystemExit(1)


def described(report: "ConversionReport") -> dict[str, Any]:
    """A report for JSON; what has no end is the string "without end"."""
    found, (before, after) = report.divergence, report.growth
    endless = None if found.endless is None else {"lead": found.endless[0], "cycle": found.endless[1]}
    return {
        "lossless": report.lossless,
        "at": report.source.at,
        "carried": _state(report.source),
        "assumed": dict(report.source.assumed),
        "ignored": list(report.source.ignored),
        "dropped": {name: {"was": was, "is": now} for name, (was, now) in report.dropped.items()},
        "settings": dict(report.settings),
        "taken": report.taken,
        "rule": json.loads(report.target.rule.to_json()),
        "next_growth": {"source": before, "target": after},
        "divergence": {
            "first": found.first,
            "steps": "without end" if found.steps == math.inf else found.steps,
            "endless": endless,
            "searched": found.searched,
        },
    }


def _lines(source: str, target: str, report: "ConversionReport") -> Iterator[str]:
    """A report for reading."""
    place = f", at {report.source.at}" if report.source.at else ""
    yield f"{source}{place} -> {target}"
    yield f"carried    {', '.join(_carried(report.source))}"
    yield from (f"assumed    {name} = {value!r}" for name, value in report.source.assumed.items())
    yield from (f"dropped    {name}: was {was!r}, is {now!r}" for name, (was, now) in report.dropped.items())
    if report.source.ignored:
        shown, more = report.source.ignored[:SHOWN], len(report.source.ignored) - SHOWN
        yield f"left out   {', '.join(map(str, shown))}{f' and {more} more' if more > 0 else ''}: not the scaler's"
    if report.settings:
        yield f"construct  {', '.join(f'{name}={value!r}' for name, value in report.settings.items())}"
    yield f"load       {report.taken}"
    yield f"growth     {_growth(*report.growth)}"
    yield from (f"parting    {line}" for line in _parting(report.divergence))


def _carried(source: "Checkpoint") -> Iterator[str]:
    state = _state(source)
    yield f"scale {power(state['scale'])}"
    yield counted(state["good_steps"], "finite step")
    yield counted(state["bad_steps"], "overflow")


def _growth(before: int | None, after: int | None) -> str:
    """By how much the next growth is late or early."""
    if before is None or after is None:
        never = "neither scale grows again" if before == after else f"only the {'source' if after is None else 'target'}'s grows"
        return f"if no overflow comes, {never}"
    late = f"{counted(abs(after - before), 'step')} {'late' if after > before else 'early'}" if after != before else "as before"
    return f"if no overflow comes, the scale grows after {counted(after, 'step')}, {late}"


def _parting(found: "Divergence") -> Iterator[str]:
    """How far the two can part."""
    if found.steps == 0:
        yield "none: the two agree for ever, whatever comes"
        return
    if found.first is None:
        yield f"not known; there is none up to step {found.searched:,}, whatever comes"
        return
    yield f"at the earliest after {spelled(found.first) or 'no step'}"
    if found.endless is not None:
        lead, cycle = found.endless
        yield f"without end: for example after {spelled(lead) or 'no step'}, again and again with {spelled(cycle)}"
    elif found.steps is None:
        yield "for how many steps is not known"
    else:
        yield f"in at most {counted(int(found.steps), 'step')} of a run"


def spelled(trace: "RunLengths") -> str:
    """A trace in words: 766 finite steps, 1 overflow."""
    words = [counted(steps, "finite step" if symbol == "." else "overflow") for symbol, steps in trace[:SHOWN]]
    more = sum(run.steps for run in trace[SHOWN:])
    return ", ".join([*words, *([f"and {counted(more, 'step')} more"] if more else [])])


def _state(checkpoint: "Checkpoint") -> dict[str, Any]:
    return {name: value.item() for name, value in checkpoint.state._asdict().items() if value is not None}


def _setting(word: str) -> tuple[str, Any]:
    """``("period", 500)`` for ``period=500``."""
    key, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"a setting must be written as KEY=VALUE, got {excerpt(word)}")
    return key.strip(), constant(value.strip())


def _check_other(file: Path, out: Path) -> None:
    """A whole checkpoint is not replaced by the entries of its scaler."""
    if out.exists() and out.samefile(file):
        raise ValueError(f"--out must be another file than IN, got {out}")
