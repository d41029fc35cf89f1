"""`ampscale simulate`: the scale of one rule along an overflow trace, step by step."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..simulation.simulate import Trajectory
from ..simulation.simulate import simulate as run
from .commands import command
from .describe import counted, exact, fold
from .ranks import STEPS as RANK_STEPS
from .ranks import rank_options, run_ranks, take_rank_options
from .rule_arguments import complete_rule, parse_settings, read_rule
from .trace_options import STEPS, read_trace, shared_options
from .trajectories import document, draw, to_json

FEW = 100  # longest trace whose steps are all printed by default, and largest number of printed rows


@command(
    "ampscale simulate torch:growth_interval=4 --trace '....x.xx'",
    "ampscale simulate megatron --log train.log --picture scale.png",
    "ampscale simulate --ranks 4096 --probability 1e-5",
)
@click.argument("rule", metavar="[RULE]", required=False, shell_complete=complete_rule)
@shared_options(
    steps="Number of steps of the generated trace or, with --ranks, of the simulation. "
    f"[default: {STEPS}; {RANK_STEPS} with --ranks]",
    seed="Random seed of the noise or, with --ranks, of the simulation. [default: 0]",
)
@click.option(
    "--every/--events",
    default=None,
    help=f"Print all steps, or only overflows and scale changes. [default: all, if there are at most {FEW}]",
)
@click.option("--all", "unlimited", is_flag=True, help=f"Print more than {FEW} rows.")
@rank_options
def simulate(
    rule: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    picture: Path | None,
    every: bool | None,
    unlimited: bool,
    **trace: Any,
) -> None:
    """
    Run a loss scaler along an overflow trace, and print every step.

    RULE is a preset (torch), a preset with settings (paddle:hysteresis=2,init_scale=2**16), a JSON file with a rule, or
    'LossScaleRule(...)' as Python prints it. Steps are counted from 0.

    A row of the table shows the state before a step, which is the scale and the counts of finite steps (good) and of overflows
    (bad); and the outcome of the step, finite or overflow, with the change of the scale after it.

    \b
    With --json:
      name, rule              RULE, and its constants
      steps                   number of steps
      raised_at               the step at which the published scaler raises an
                              error, which is the last step; or null
      final_scale, growths, backoffs, overflows
      trace                   the steps: '.' finite, 'x' overflow
      scales                  the scale of each step and, unless the scaler
                              raises, after the last step
      good_steps, bad_steps   the counts at the same times
    Numbers are printed so that a parser gets the same float64. An infinite
    scale, which JSON cannot hold, is the string "inf".

    With --ranks, there is no trace. The command prints a model of the time that ranks need to agree on an overflow.
    It also simulates ranks that use RULE (by default torch) and decide alone.

    \b
    With --ranks and --json:
      model                   the latencies and the other options of the model
      costs                   for each number of ranks
        ranks                 the number
        flat, tree, hierarchical   seconds of one collective
        disagreement_probability   probability in each step
        steps_until_disagreement   expected number of steps; or "inf"
      systems                 for each system
        system                its name
        collectives           the fewest and the most collectives per step
        seconds               the seconds of these collectives
      ranks                   number of simulated ranks
      name, rule              RULE, and its constants
      steps, seed             number of steps, and random seed
      disagreements           number of steps in which ranks disagree
      first_disagreement      the first of these steps; or null
      scales                  the distinct scales after the last step
      ranks_with_scale        the number of ranks with each of these scales
    """  # noqa: D301 - click does not rewrap a paragraph after a backspace character
    rank_settings = take_rank_options(trace)
    if rule is None and rank_settings is None:
        raise click.MissingParameter(param_hint="'RULE'", param_type="argument")
    if rank_settings is not None and (every is not None or unlimited):
        raise click.UsageError("--ranks cannot be combined with --every, --events or --all")
    if as_json and (every is not None or unlimited):
        raise click.UsageError("--json prints every step and cannot be combined with --every, --events or --all")
    name, constants = read_rule("torch" if rule is None else rule, parse_settings(settings))
    if rank_settings is not None:
        run_ranks(name, constants, rank_settings, picture, as_json=as_json)
        return
    steps = read_trace(trace)
    trajectory = run(constants, steps)
    draw({name: trajectory}, [], picture)
    if as_json:
        click.echo(to_json(document(name, constants, trajectory)))
        return
    click.echo("\n".join(_table(trajectory, every, unlimited)))
    click.echo(_summary(name, trajectory, len(steps)))
    if picture is not None:
        click.echo(f"Picture: {picture}")


def _table(trajectory: Trajectory, every: bool | None, unlimited: bool) -> Iterator[str]:
    """Yield the selected rows, and lines that count the omitted rows and steps."""
    steps = trajectory.steps
    prints_all = steps <= FEW if every is None else every
    selected = np.arange(steps) if prints_all else _eventful(trajectory)
    excess = 0 if unlimited else max(0, selected.size - FEW)
    rows = _rows(trajectory, np.delete(selected, slice(FEW // 2, FEW // 2 + excess)))
    yield from islice(rows, 1 + FEW // 2)  # the titles and the first half of the rows
    if excess:
        yield f"... {counted(excess, 'more row')}; --all prints them ..."
    yield from rows
    if selected.size < steps:
        options = "--every --all" if steps > FEW and not unlimited else "--every"
        omitted = counted(steps - selected.size, "step")
        yield fold(f"Omitted: {omitted} without overflow or scale change; {options} prints them.", "  ")


def _eventful(trajectory: Trajectory) -> np.ndarray:
    """Return the indices (int64) of the steps that overflow, change the scale, or raise the error of the published scaler."""
    steps = np.flatnonzero(~trajectory.finite | (trajectory.scales[1:] != trajectory.scales[:-1]))
    return steps if trajectory.raised_at is None else np.append(steps, trajectory.raised_at)


def _rows(trajectory: Trajectory, selected: np.ndarray) -> Iterator[str]:
    """Yield the titles, a row for each selected step, and the state after the last step, in aligned columns."""
    last = trajectory.scales.size - 1
    steps = selected if trajectory.raised_at is not None else np.append(selected, last)
    scales = [exact(scale) for scale in trajectory.scales[steps].tolist()]
    good = trajectory.good_steps[steps].tolist()
    bad = trajectory.bad_steps[steps].tolist()
    widths = [max(4, len(f"{last:,}")), max(5, *map(len, scales))]
    widths += [max(4, len(str(max(counts))), len(str(min(counts)))) for counts in (good, bad)]
    pattern = "  ".join(f"{{:>{width}}}" for width in widths)
    yield pattern.format("step", "scale", "good", "bad") + "  outcome"
    for step, scale, *counts in zip(steps.tolist(), scales, good, bad, strict=True):
        if step == last and trajectory.raised_at is None:
            yield pattern.format("end", scale, *counts)
        else:
            yield f"{pattern.format(f'{step:,}', scale, *counts)}  {_outcome(trajectory, step)}"


def _outcome(trajectory: Trajectory, step: int) -> str:
    if step == trajectory.raised_at:
        return "overflow: raises an error"
    outcome = "finite" if trajectory.finite[step] else "overflow"
    scale, new_scale = trajectory.scales[step], trajectory.scales[step + 1]
    if new_scale == scale:
        return outcome
    return f"{outcome}: {'grows' if new_scale > scale else 'backs off'} to {exact(new_scale)}"


def _summary(name: str, trajectory: Trajectory, steps: int) -> str:
    changes = f"{counted(trajectory.growths, 'growth')}, {counted(trajectory.backoffs, 'backoff')}"
    counts = f"{counted(trajectory.steps, 'step')}, {counted(trajectory.overflows, 'overflow')}, {changes}"
    summary = fold(f"{name}: {counts}; final scale {exact(trajectory.scales[-1])}.", "  ")
    if trajectory.raised_at is None:
        return summary
    remaining = steps - trajectory.steps
    omitted = f" {counted(remaining, 'later step')} not simulated." if remaining else ""
    error = fold(f"The published scaler raises an error at step {trajectory.raised_at:,}.{omitted}")
    return f"{summary}\n{error}"
