"""Options that `simulate` and `compare` share: the source of the overflow trace, settings, and output."""

from collections.abc import Callable, Mapping
from os.path import isfile
from pathlib import Path
from typing import Any

import click

from ..diagnostics.run_files import FORMAT as RUN_FORMAT
from ..parsing import MOST_STEPS, excerpt
from ..simulation import Log, Trace, from_csv, from_model, from_string, read_log
from ..simulation.recordings.files import read_text
from ..simulation.recordings.log_formats import LOG_FORMATS
from .commands import JSON, Name, flag, with_flags, with_options
from .describe import fold
from .rule_arguments import NUMBER

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PICTURES = (".png", ".svg")
SOURCES: dict[str, tuple[str, ...]] = {  # sources of a trace, each with the options that require this source
    "trace": (),
    "file": (),
    "csv": ("column", "means"),
    "log": ("log_format", "step_pattern"),
    "overflow_above": ("noise", "drift", "steps", "seed"),
}
STEPS = 10_000
RUN_FILE = f'{{"format":"{RUN_FORMAT}",'  # beginning of a file that `ampscale.diagnostics.JSONLines` wrote
FORMAT = Name("log format", LOG_FORMATS)
LOG_FORMAT = click.option("--log-format", type=FORMAT, metavar="NAME", help="Project that wrote the log. [default: detect it]")
STEP_PATTERN = click.option(
    "--step-pattern", metavar="REGEX", help="Pattern of the log lines that end a step; its group 'step' matches the step number."
)
OPTIONS = (
    click.option("--trace", metavar="TEXT", help="Steps: '.' for a finite step, 'x' for an overflow; whitespace is ignored."),
    click.option("--file", type=FILE, help="Text file in the format of --trace."),
    click.option("--csv", type=FILE, help="CSV file with a column of flags and a row for each step."),
    click.option(
        "--column", metavar="NAME", help="Column of flags in the CSV. [default: finite, overflow, found_inf or skipped]"
    ),
    click.option(
        "--means",
        type=click.Choice(["finite", "overflow"]),
        help="Meaning of a true flag; required if the name of the column does not specify it.",
    ),
    click.option("--log", type=FILE, help="Training log with the messages of a known loss scaler."),
    LOG_FORMAT,
    STEP_PATTERN,
    click.option(
        "--overflow-above", type=NUMBER, help="Generate a trace: a step overflows at a scale above this limit, such as 2**15."
    ),
    click.option("--noise", type=click.FLOAT, help="Standard deviation of that limit, in powers of two. [default: 0]"),
    click.option("--drift", type=click.FLOAT, help="Drift of that limit, in powers of two per 1000 steps. [default: 0]"),
)


def _check_picture(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Raise an error, before the simulation, if the suffix of *path* is not in `PICTURES` or its folder does not exist."""
    if path is not None and path.suffix not in PICTURES:
        raise click.BadParameter(f"the file name must end in {' or '.join(PICTURES)}, got {excerpt(path.name)}")
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {excerpt(str(path.parent))}")
    return path


OUTPUTS = (
    click.option(
        "--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Constant of the rules, such as init_scale=2**16."
    ),
    JSON,
    click.option(
        "--picture",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_check_picture,
        help="Plot the scales to this .png or .svg file.",
    ),
)


def shared_options(
    steps: str = f"Number of steps of the generated trace. [default: {STEPS}]",
    seed: str = "Random seed of the noise. [default: 0]",
) -> Callable[[Any], Any]:
    """
    Return a decorator that adds the options of this module to a command.

    The command passes the options of the trace to `read_trace`. *steps* and *seed* are the help texts of --steps and --seed.
    """
    return with_options(
        *OPTIONS,
        click.option("--steps", type=click.IntRange(1, MOST_STEPS), help=steps),
        click.option("--seed", type=click.IntRange(min=0), help=seed),
        *OUTPUTS,
    )


def read_trace(options: Mapping[str, Any]) -> Trace:
    """
    Read the overflow trace from the source that the options specify. Notes on a log are printed to stderr.

    An option that was not given is None.
    """
    sources = [name for name in SOURCES if options[name] is not None]
    if len(sources) != 1:
        actual = " and ".join(map(flag, sources)) or "none"
        raise click.UsageError(f"the overflow trace must come from one of {', '.join(map(flag, SOURCES))}, got {actual}")
    required = {name: source for source, names in SOURCES.items() for name in names if options[name] is not None}
    for name, source in required.items():
        if source != sources[0]:
            raise click.UsageError(f"{flag(name)} requires {flag(source)}, got {flag(sources[0])}")
    try:
        trace = _read(sources[0], options)
        if len(trace) == 0:
            raise ValueError("the overflow trace must have at least one step, such as '..x.', got none")
        return trace
    except (ValueError, OSError) as error:
        raise click.BadParameter(with_flags(str(error)), param_hint=[flag(name) for name in (sources[0], *required)]) from None


def _read(source: str, options: Mapping[str, Any]) -> Trace:
    if source == "trace":
        try:
            return from_string(options["trace"])
        except ValueError as error:
            remedy = "; pass a file with --file" if isfile(options["trace"]) else ""
            raise ValueError(f"{error}{remedy}") from None
    if source == "file":
        try:
            return from_string(read_text(options["file"]))
        except ValueError as error:
            raise ValueError(f"{error}; use --csv for a CSV file, and --log for a training log") from None
    if source == "csv":
        return from_csv(options["csv"], options["column"], options["means"])
    if source == "log":
        return read_training_log(options["log"], options).trace()
    settings = {name: options[name] for name in ("noise", "drift", "seed") if options[name] is not None}
    return from_model(options["steps"] or STEPS, options["overflow_above"], **settings)


def read_training_log(path: Path, options: Mapping[str, Any]) -> Log:
    """Read a training log as *options* specify, and print its notes to stderr."""
    text = read_text(path)
    if text.startswith(RUN_FILE):
        remedy = "use ampscale watch, report or suggest, or write its scales to a CSV file for this command"
        raise ValueError(f"{path} is a run file, not a log: {remedy}")
    log = read_log(text, options["log_format"], options["step_pattern"])
    for note in log.notes:
        click.echo(fold(note, "  "), err=True)
    return log
