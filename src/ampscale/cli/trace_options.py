"""The options that `simulate` and `compare` share: where a trace comes from, what is set, and what comes out."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..parsing import MOST_STEPS, excerpt
from .rule_arguments import NUMBER

if TYPE_CHECKING:  # imported when a command runs
    from ..simulation.traces import Trace

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PICTURES = (".png", ".svg")
SOURCES = ("trace", "file", "csv", "log", "overflow_above")
STEPS = 10_000
OPTIONS = (
    click.option("--trace", metavar="TEXT", help="The steps: '.' for a finite one, 'x' for an overflow; blanks mean nothing."),
    click.option("--file", type=FILE, help="A file of such a text."),
    click.option("--csv", type=FILE, help="A CSV file with a column of flags, a row a step."),
    click.option("--column", metavar="NAME", help="Its column. [default: finite, overflow, found_inf or skipped]"),
    click.option(
        "--means",
        type=click.Choice(["finite", "overflow"]),
        help="What a true cell means, where the column's name does not say it.",
    ),
    click.option("--log", type=FILE, help="A training log with the messages of a known loss scaler."),
    click.option("--log-format", metavar="NAME", help="Whose messages. [default: those that are found]"),
    click.option(
        "--step-pattern", metavar="REGEX", help="Matches the lines of the log that end a step; group 'step' is its number."
    ),
    click.option("--overflow-above", type=NUMBER, help="A model instead: steps overflow at scales above this, like 2**15."),
    click.option("--noise", type=click.FLOAT, help="Scatter of that bound, a standard deviation in powers of two. [default: 0]"),
    click.option("--drift", type=click.FLOAT, help="Its drift, in powers of two per 1000 steps. [default: 0]"),
    click.option("--steps", type=click.IntRange(1, MOST_STEPS), help=f"How many steps the model has. [default: {STEPS}]"),
    click.option("--seed", type=click.IntRange(min=0), help="Of the scatter. [default: 0]"),
)
GOES_WITH = {
    "column": "csv", "means": "csv", "log_format": "log", "step_pattern": "log",
    "noise": "overflow_above", "drift": "overflow_above", "steps": "overflow_above", "seed": "overflow_above",
}  # fmt: skip


def _check_picture(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuses a picture that could not be written, before anything else is done."""
    if path is not None and path.suffix not in PICTURES:
        raise click.BadParameter(f"a picture must end in {' or '.join(PICTURES)}, got {excerpt(path.name)}")
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {excerpt(str(path.parent))}")
    return path


OUTPUTS = (
    click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="A constant, as init_scale=2**16."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else."),
    click.option(
        "--picture",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_check_picture,
        help="Draw the scales into a file that ends in .png or .svg.",
    ),
)


def shared_options(command: Command) -> Command:
    """Gives a command the options above. Those of the trace are for `read_trace`."""
    for option in reversed((*OPTIONS, *OUTPUTS)):
        command = option(command)
    return command


def read_trace(options: Mapping[str, Any]) -> "Trace":
    """
    The trace that the options say. What there is to note of a log goes to stderr.

    Args:
        options: The value of each of the options above; None for those that were not given.

    Raises:
        click.UsageError: There is not exactly one source, an option goes with another source, or the source cannot be read.
    """
    given = [name for name in SOURCES if options[name] is not None]
    if len(given) != 1:
        got = " and ".join(map(_flag, given)) or "none"
        raise click.UsageError(f"a trace is wanted from one of {', '.join(map(_flag, SOURCES))}, got {got}")
    for name, source in GOES_WITH.items():
        if options[name] is not None and source != given[0]:
            raise click.UsageError(f"{_flag(name)} goes with {_flag(source)}, got {_flag(given[0])}")
    try:
        return _READERS[given[0]](options)
    except (ValueError, OSError) as error:
        used = [_flag(name) for name in (*given, *GOES_WITH) if options[name] is not None]
        raise click.BadParameter(str(error), param_hint=used) from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _from_text(options: Mapping[str, Any]) -> "Trace":
    from ..simulation.traces import from_string

    return from_string(options["trace"])


def _from_file(options: Mapping[str, Any]) -> "Trace":
    from ..simulation.recordings.files import read_text
    from ..simulation.traces import from_string

    try:
        return from_string(read_text(options["file"]))
    except ValueError as error:
        raise ValueError(f"{error}; for a CSV file there is --csv, and for a training log --log") from None


def _from_csv(options: Mapping[str, Any]) -> "Trace":
    from ..simulation import from_csv

    return from_csv(options["csv"], options["column"], options["means"])


def _from_log(options: Mapping[str, Any]) -> "Trace":
    from ..simulation.recordings.files import read_text
    from ..simulation.recordings.logs import read_log

    log = read_log(read_text(options["log"]), options["log_format"], options["step_pattern"])
    for note in log.notes:
        click.echo(note, err=True)
    return log.trace()


def _from_model(options: Mapping[str, Any]) -> "Trace":
    from ..simulation.traces import from_model

    chosen = {name: options[name] for name in ("noise", "drift", "seed") if options[name] is not None}
    return from_model(STEPS if options["steps"] is None else options["steps"], options["overflow_above"], **chosen)


_READERS: dict[str, Callable[[Mapping[str, Any]], "Trace"]] = {
    "trace": _from_text,
    "file": _from_file,
    "csv": _from_csv,
    "log": _from_log,
    "overflow_above": _from_model,
}
