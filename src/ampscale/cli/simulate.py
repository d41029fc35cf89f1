"""`ampscale simulate`: what a scaler does along a trace, step by step."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .describe import counted, exact
from .rule_arguments import parse_settings, read_rule
from .trace_options import read_trace, shared_options

if TYPE_CHECKING:  # imported when the command runs
    from ..simulation.simulate import Trajectory

FEW = 100  # a trace of so many steps is printed whole, and of a longer one so many rows


@click.command()
@click.argument("rule", metavar="RULE")
@shared_options
@click.option(
    "--every/--events",
    default=None,
    help=f"Print every step, or those at which something happened.  [default: every of up to {FEW}]",
)
@click.option("--all", "unlimited", is_flag=True, help=f"Print all of these, where there are more than {FEW}.")
def simulate(
    rule: str, settings: tuple[str, ...], as_json: bool, picture: Path | None, every: bool | None, unlimited: bool, **trace: Any
) -> None:
    """
    Show what a loss scaler does, step by step.

    RULE is a preset (torch), a preset with settings (paddle:hysteresis=2,init_scale=2**16), a JSON file of a rule, or
    'LossScaleRule(...)' as Python prints it. Steps are counted from 0.

    The table has what each step began with, which is the scale in force and the counts of finite steps and of overflows; whether
    its gradients were finite; and what then happened to the scale.

    \b
    With --json:
      name, rule              what RULE says
      steps                   how many there were
      raised_at               the step in which the published scaler raises;
                              it is the last one; or null
      final_scale, growths, backoffs, overflows
      trace                   the steps: '.' finite, 'x' overflow
      scales                  in force at each step and, where none raises,
                              after the last
      good_steps, bad_steps   the counts at the same times
    Scales are written so that they are read back exactly as float64; an
    infinite one, which JSON has not, is the string "inf".
    """  # noqa: D301 - click leaves lines alone after a backspace
    if as_json and (every is not None or unlimited):
        raise click.UsageError("--json has every step: give it without --every, --events and --all")
    from ..simulation.simulate import simulate as run
    from .trajectories import as_json as written
    from .trajectories import described, drawn

    name, constants = read_rule(rule, parse_settings(settings))
    steps = read_trace(trace)
    found = run(constants, steps)
    drawn({name: found}, [], picture)
    if as_json:
        click.echo(written(described(name, constants, found)))
        return
    click.echo("\n".join(_table(found, every, unlimited)))
    click.echo(_summary(name, found, len(steps)))
    if picture is not None:
        click.echo(f"The picture is {picture}.")


def _table(found: "Trajectory", every: bool | None, unlimited: bool) -> Iterator[str]:
    """The rows that are wanted, and lines on what is left out."""
    steps = found.steps
    chosen = np.arange(steps) if (steps <= FEW if every is None else every) else _eventful(found)
    more = 0 if unlimited else max(0, chosen.size - FEW)
    rows = _rows(found, np.delete(chosen, slice(FEW // 2, FEW // 2 + more)))
    yield from islice(rows, 1 + FEW // 2)  # with the titles
    if more:
        yield f"... {counted(more, 'row')} more, with --all ..."
    yield from rows
    if chosen.size < steps:
        yield f"Left out: {counted(steps - chosen.size, 'step')} at which nothing happened; --every prints them."


def _eventful(found: "Trajectory") -> np.ndarray:
    """The steps that overflowed, or after which another scale is in force: int64."""
    steps = np.flatnonzero(~found.finite | (found.scales[1:] != found.scales[:-1]))
    return steps if found.raised_at is None else np.append(steps, found.raised_at)


def _rows(found: "Trajectory", chosen: np.ndarray) -> Iterator[str]:
    """The titles, a row a step, and the state after the last one; all of one width."""
    last = found.scales.size - 1
    steps = chosen if found.raised_at is not None else np.append(chosen, last)
    scales, good, bad, after = (
        values.tolist()
        for values in (
            found.scales[steps],
            found.good_steps[steps],
            found.bad_steps[steps],
            found.scales[(steps + 1).clip(max=last)],
        )
    )
    words = {scale: exact(scale) for scale in {*scales, *after}}
    wide = [max(4, len(f"{last:,}")), max(5, *map(len, words.values()))]
    wide += [max(4, len(str(max(counts))), len(str(min(counts)))) for counts in (good, bad)]
    pattern = "  ".join(f"{{:>{width}}}" for width in wide)

    def happened(step: int, scale: float, now: float) -> str:
        if step == found.raised_at:
            return "  overflow: the scaler raises"
        moves = "" if now == scale else f": {'grows' if now > scale else 'backs off'} to {words[now]}"
        return ("  finite" if found.finite[step] else "  overflow") + moves

    yield pattern.format("step", "scale", "good", "bad") + "  gradients"
    for step, scale, now, *counts in zip(steps.tolist(), scales, after, good, bad, strict=True):
        if step == last and found.raised_at is None:
            yield pattern.format("end", words[scale], *counts)
        else:
            yield pattern.format(f"{step:,}", words[scale], *counts) + happened(step, scale, now)


def _summary(name: str, found: "Trajectory", steps: int) -> str:

    kinds = {"step": found.steps, "overflow": found.overflows, "growth": found.growths, "backoff": found.backoffs}
    counts = ", ".join(counted(number, kind) for kind, number in kinds.items())
    said = f"{name}: {counts}; the scale ends at {exact(found.scales[-1])}."
    if found.raised_at is None:
        return said
    return f"{said}\nThe published scaler raises at step {found.raised_at:,}; of {counted(steps, 'step')} no more are simulated."
