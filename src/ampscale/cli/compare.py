"""`ampscale compare`: several scalers along one overflow trace, and the steps at which they diverge."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ..simulation.compare import Comparison
from ..simulation.compare import compare as run
from ..simulation.simulate import Trajectory
from .commands import command
from .describe import exact, fold
from .rule_arguments import complete_rule, parse_settings, read_rules
from .trace_options import read_trace, shared_options
from .trajectories import document, draw, to_json

DEFINITION = """\
Two rules diverge at the first step after which their scales differ, or at which only one of the two raises. Steps are \
counted from 0."""
KEY = '"-" means that the two do not diverge, and "start" that their initial scales differ.'
UNLIMITED = 1000  # columns; no terminal is that wide


@command(
    "ampscale compare torch paddle:hysteresis=2 --trace '..x.xx..'",
    "ampscale compare torch megatron deepspeed --overflow-above 2**15 --noise 1",
    short_help="Run several loss scalers along one overflow trace.",
)
@click.argument("rules", metavar="RULE RULE ...", nargs=-1, required=True, shell_complete=complete_rule)
@shared_options()
def compare(rules: tuple[str, ...], settings: tuple[str, ...], as_json: bool, picture: Path | None, **trace: Any) -> None:
    """
    Run several loss scalers along one overflow trace, and print the steps at which they diverge.

    A RULE is a preset (torch), a preset with settings (paddle:hysteresis=2,init_scale=2**16), a JSON file with a rule, or
    'LossScaleRule(...)' as Python prints it. --set changes the parameters that a preset has and ignores the others.

    Two rules diverge at the first step after which their scales differ, or at which only one of the two published scalers
    raises an error. Steps are counted from 0; rules with different initial scales diverge at -1.

    \b
    With --json:
      steps         number of steps of the trace
      rules         for each RULE the output of `ampscale simulate --json`
      divergences   for each pair of rules
        rules       the two names
        step        the step at which they diverge; or null
    """  # noqa: D301 - click does not rewrap a paragraph after a backspace character
    named_rules = read_rules(rules, parse_settings(settings))
    if len(named_rules) < 2:
        raise click.UsageError("at least two rules are required, got one; ampscale simulate runs a single rule")
    steps = read_trace(trace)
    comparison = run(named_rules, steps)
    draw(comparison.trajectories, sorted({step for step in comparison.divergences.values() if step is not None}), picture)
    if as_json:
        pairs = [{"rules": pair, "step": step} for pair, step in comparison.divergences.items()]
        runs = [document(name, named_rules[name], trajectory) for name, trajectory in comparison.trajectories.items()]
        click.echo(to_json({"steps": len(steps), "rules": runs, "divergences": pairs}))
        return
    _print(comparison)
    if picture is not None:
        click.echo(f"Picture: {picture}")


def _print(comparison: Comparison) -> None:
    """Print a table with a row for each rule, and the divergences: many as a matrix if it fits, otherwise as sentences."""
    from .tables import Column, number_columns, table, trimmed_console

    names = list(comparison.trajectories)
    counts = number_columns("overflows", "growths", "backoffs", "raises\nat step", "final\nscale")
    columns = [*number_columns(""), Column("rule", overflow="fold"), *counts]
    runs = enumerate(comparison.trajectories.items(), start=1)
    rows = [_row(number, name, trajectory) for number, (name, trajectory) in runs]
    matrix = table(number_columns("", *map(str, range(1, len(names)))), _matrix_rows(names, comparison.divergences))
    with trimmed_console() as console:
        console.print(table(columns, rows))
        width = console.measure(matrix, options=console.options.update(width=UNLIMITED)).maximum
        if len(names) > 3 and width <= console.width:
            console.print(f"{DEFINITION} {KEY}", matrix, sep="\n")
        else:
            console.print(DEFINITION)
            sentences = (fold(_sentence(*pair, step), "    ") for pair, step in comparison.divergences.items())
            console.print(*sentences, sep="\n", soft_wrap=True)


def _row(number: int, name: str, trajectory: Trajectory) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (trajectory.overflows, trajectory.growths, trajectory.backoffs))
    raises = "-" if trajectory.raised_at is None else f"{trajectory.raised_at:,}"
    return str(number), name, *counts, raises, exact(float(trajectory.scales[-1]))


def _matrix_rows(names: list[str], divergences: Mapping[tuple[str, str], int | None]) -> Iterator[list[str]]:
    """Yield a row for each rule but the first: its number, and the steps at which it diverges from the rules before it."""
    for index, name in enumerate(names[1:], start=1):
        yield [str(index + 1), *(_cell(divergences[other, name]) for other in names[:index])]


def _cell(step: int | None) -> str:
    if step is None:
        return "-"
    return "start" if step < 0 else f"{step:,}"


def _sentence(first: str, second: str, step: int | None) -> str:
    if step is None:
        return f"  {first} and {second} do not diverge on this trace."
    if step < 0:
        return f"  {first} and {second} start with different scales."
    return f"  {first} and {second} diverge at step {step:,}."
