"""`ampscale compare`: what several scalers do along one trace, and where they diverge."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .describe import exact
from .extras import need
from .rule_arguments import parse_settings, read_rules
from .trace_options import read_trace, shared_options

if TYPE_CHECKING:  # imported when the command runs
    from rich.table import Table

    from ..simulation.compare import Comparison

DIVERGENCE = """\
Two rules diverge at the first step after which their scales differ, or at which one of the two raises. Steps are counted \
from 0."""
SIGNS = """ "-" is never, and "start" is where they start with different scales."""


@click.command()
@click.argument("rules", metavar="RULE RULE ...", nargs=-1, required=True)
@shared_options
def compare(rules: tuple[str, ...], settings: tuple[str, ...], as_json: bool, picture: Path | None, **trace: Any) -> None:
    """
    Run several loss scalers along one trace, and say where they diverge.

    Each RULE is a preset (torch), a preset with settings (paddle:hysteresis=2,init_scale=2**16), a JSON file of a rule, or
    'LossScaleRule(...)' as Python prints it. --set sets what a preset has, and leaves out what it has not.

    Two rules diverge at the first step after which the scales in force differ, or at which one of the two published scalers
    raises. Steps are counted from 0; rules that start with different scales diverge at -1.

    \b
    With --json:
      steps         how many the trace has
      rules         for each RULE what `ampscale simulate --json` prints
      divergences   for each pair of them
        rules       the two names
        step        at which they diverge; or null
    """  # noqa: D301 - click leaves lines alone after a backspace
    from ..simulation.compare import compare as run
    from .trajectories import as_json as written
    from .trajectories import described, drawn

    named = read_rules(rules, parse_settings(settings))
    if len(named) < 2:
        raise click.UsageError("two rules or more are wanted; for one there is `ampscale simulate`")
    steps = read_trace(trace)
    found = run(named, steps)
    drawn(found.trajectories, sorted({step for step in found.divergences.values() if step is not None}), picture)
    if as_json:
        pairs = [{"rules": pair, "step": step} for pair, step in found.divergences.items()]
        runs = [described(name, named[name], trajectory) for name, trajectory in found.trajectories.items()]
        click.echo(written({"steps": len(steps), "rules": runs, "divergences": pairs}))
        return
    need("rich")
    _print(found)
    if picture is not None:
        click.echo(f"The picture is {picture}.")


def _print(found: "Comparison") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    matrix = _matrix(found)
    wide = console.measure(matrix, options=console.options.update(width=1000)).maximum
    with console.capture() as printed:
        console.print(_summary(found))
        if len(found.trajectories) > 3 and wide <= console.width:
            console.print(DIVERGENCE + SIGNS, matrix, sep="\n")
        else:
            console.print(DIVERGENCE)
            console.print(*(_sentence(*pair, step) for pair, step in found.divergences.items()), sep="\n", soft_wrap=True)
    lines = (line.rstrip() for line in printed.get().splitlines())  # rich fills lines up
    click.echo("\n".join(lines).strip("\n"))


def _summary(found: "Comparison") -> "Table":
    """A row a rule."""
    made = _empty_table()
    made.add_column("", justify="right", no_wrap=True)
    made.add_column("rule", overflow="fold")
    for title in ("overflows", "growths", "backoffs", "raises\nat step", "final\nscale"):
        made.add_column(title, justify="right", no_wrap=True)
    for number, (name, one) in enumerate(found.trajectories.items(), start=1):
        counts = (f"{count:,}" for count in (one.overflows, one.growths, one.backoffs))
        raises = "-" if one.raised_at is None else f"{one.raised_at:,}"
        made.add_row(str(number), name, *counts, raises, exact(float(one.scales[-1])))
    return made


def _matrix(found: "Comparison") -> "Table":
    """A row and a column a rule, by its number."""
    names = list(found.trajectories)
    made = _empty_table()
    made.add_column("", justify="right", no_wrap=True)
    for number in range(1, len(names)):
        made.add_column(str(number), justify="right", no_wrap=True)
    for row, name in enumerate(names[1:], start=1):
        made.add_row(str(row + 1), *(_sign(found.divergences[other, name]) for other in names[:row]))
    return made


def _empty_table() -> "Table":
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, padding=0)


def _sign(step: int | None) -> str:
    if step is None:
        return "-"
    return "start" if step < 0 else f"{step:,}"


def _sentence(one: str, other: str, step: int | None) -> str:
    if step is None:
        return f"  {one} and {other} never diverge."
    if step < 0:
        return f"  {one} and {other} start with different scales."
    return f"  {one} and {other} diverge at step {step:,}."
