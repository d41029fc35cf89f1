"""`ampscale identify`: the published scalers that are consistent with observed scales."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from ..diagnostics.records import encoded
from ..simulation import Explanation, Observed, observed_from_csv
from ..simulation.identification.follow_scales import Contradiction
from ..simulation.identification.identify import identify as search
from ..simulation.recordings.files import read_text
from ..simulation.recordings.logs import recognized_formats
from ..simulation.traces import Overflow
from .commands import JSON, command, flag, usage_errors, with_flags
from .describe import counted, exact
from .progress import progress
from .rule_arguments import number, parse_settings, value_of
from .trace_options import FILE, LOG_FORMAT, STEP_PATTERN, read_training_log
from .trajectories import to_json, trace_text

if TYPE_CHECKING:
    from .tables import Column, Table

# Options that apply to one type of file only.
FILE_OPTIONS = {"CSV file": ("scale_column", "overflow_column"), "log": ("log", "log_format", "step_pattern")}


class Observation(NamedTuple):
    """Observed scales, or the overflows of a log that does not number its steps."""

    observed: Observed | Sequence[Overflow]
    unit: str  # "steps" or "overflows": the index of a contradiction counts these
    summary: str  # sentences about the observation
    settings: Mapping[str, Any] = {}  # settings that the log format implies


@command(
    "ampscale identify --scales '65536 65536 32768 32768'",
    "ampscale identify train.log --set growth_interval=1000",
    short_help="Find the published scalers consistent with given scales.",
)
@click.argument("path", required=False, type=FILE)
@click.option("--scales", metavar="'S S ...'", help="Scale at each step, instead of a file; '?' for an unknown one.")
@click.option("--scale-column", metavar="NAME", help="Column of a CSV file with the scale at each step. [default: scale]")
@click.option(
    "--overflow-column",
    metavar="NAME",
    help="Column of flags. [default: finite, overflow, found_inf or skipped, if there is one]",
)
@click.option("--log", is_flag=True, help="Read PATH as a training log. [default: unless its name ends in .csv]")
@LOG_FORMAT
@STEP_PATTERN
@click.option("--resumed", is_flag=True, help="The run was resumed at the first scale, with unknown counts.")
@click.option("--rtol", default=0.0, metavar="R", help="Relative error of rounded scales, such as 1e-4. [default: 0]")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Known setting, such as hysteresis=2.")
@JSON
def identify(settings: tuple[str, ...], resumed: bool, rtol: float, as_json: bool, **source: Any) -> None:
    """
    Find the published scalers that are consistent with the scales of a run, and show where the others are not.

    The scales come from PATH, which is a CSV file with a row for each step or a training log, or from --scales. A scaler is
    consistent if it has exactly the observed scales for some overflow trace. Its initial scale is the first observed scale, and
    its other settings are the published defaults. If the defaults are inconsistent, as few settings as necessary are inferred.

    Steps are counted from 0. The exit code is 0 if a scaler is consistent, 1 if none is, and 2 for a usage error.

    \b
    With --json:
      counted         "steps"; or "overflows", if a log reports nothing else
      explanations    one for each preset, the best first
        name          the preset
        explains      true if the preset is consistent
        settings      the initial scale, --set, and inferred settings
        changed       names of the inferred settings
        rule          all constants; or null, if the settings are invalid
        rejection     reason why the settings are invalid; or null
        contradiction null; or the first inconsistency:
          step        the step after which it occurs; or the overflow
          expected    the scales that the rule could have at this point
          raises      true if the published scaler could have raised an error
          seen        the observed scale; "inf" if infinite, null if unknown
          undecided   true if there were too many states to search
        trace         a consistent trace: '.' finite, 'x' overflow
        overflows     number of overflows in it; other traces can have more
        ambiguous     number of steps that can be finite or an overflow
        start         counts of finite steps and overflows before the trace
    """  # noqa: D301 - click does not rewrap a paragraph after a backspace character
    with usage_errors(TypeError):
        known_settings = {field: value_of(field, value) for field, value in parse_settings(settings).items()}
        observation = _observe(source, resumed)
        if conflicts := sorted(set(known_settings) & set(observation.settings)):
            raise ValueError(f"{conflicts[0]} cannot be set, since a log of Paddle reports backoffs instead of overflows")
        known_settings = {**observation.settings, **known_settings}
        with progress("Searching"):
            explanations = search(observation.observed, settings=known_settings, rtol=rtol, resumed=resumed)
    if as_json:
        documents = [_document(explanation) for explanation in explanations]
        click.echo(to_json({"counted": observation.unit, "explanations": documents}))
    else:
        _print(observation, explanations)
    if not any(explanation.explains for explanation in explanations):
        click.get_current_context().exit(1)


def _observe(source: Mapping[str, Any], resumed: bool) -> Observation:
    """Read the observation that the options specify. Notes on a log are printed to stderr."""
    if (source["path"] is None) == (source["scales"] is None):
        raise ValueError(f"the scales must come from either a file or --scales, got {'both' if source['path'] else 'neither'}")
    options = {file_type: [name for name in names if source[name]] for file_type, names in FILE_OPTIONS.items()}
    file_types = [file_type for file_type, names in options.items() if names]
    if len(file_types) > 1 or (file_types and source["path"] is None):
        texts = (f"{flag(names[0])} requires a {file_type} as PATH" for file_type, names in options.items() if names)
        raise ValueError(f"{' and '.join(texts)}: give the options of one source")
    if source["scales"] is not None:
        return _of_steps(_from_text(source["scales"]), resumed)
    file_type = file_types[0] if file_types else _file_type(source["path"])
    if file_type == "log":
        return _from_log(source, resumed)
    return _of_steps(observed_from_csv(source["path"], source["scale_column"] or "scale", source["overflow_column"]), resumed)


def _file_type(path: Path) -> str:
    """Return "CSV file" or "log". Lightning's metrics.csv is a log."""
    return "log" if path.suffix.lower() != ".csv" or "lightning" in recognized_formats(read_text(path)) else "CSV file"


def _from_text(text: str) -> Observed:
    """Parse the argument of --scales. All flags are unknown."""
    symbols = {"?": math.nan, "inf": math.inf}
    scales = [symbols[item] if item in symbols else number(item) for item in text.replace(",", " ").split()]
    if len(scales) < 2:
        raise ValueError(f"--scales must have at least two scales, got {len(scales)}")
    return Observed(np.array(scales, np.float64), np.full(len(scales) - 1, -1, np.int8))


def _from_log(source: Mapping[str, Any], resumed: bool) -> Observation:
    """Return the steps of a log; only its overflows if it does not number its steps, or has fewer scales than overflows."""
    log = read_training_log(source["path"], source)
    if not resumed and any("begins after step" in note for note in log.notes):
        click.echo("the counts are assumed to be zero before the log; --resumed allows any counts", err=True)
    observed = log.observed
    if observed is None and not log.overflows:
        raise ValueError(log.missing)
    if observed is None or np.count_nonzero(~np.isnan(observed.scales)) < len(log.overflows):
        reason = with_flags(log.missing) or "the number of finite steps before each is unknown"
        summary = f"{counted(len(log.overflows), 'overflow')}: {reason}."
        # Paddle reports only backoffs, and any number of unreported overflows can precede each backoff.
        implied = {"hysteresis": 1} if log.log_format == "paddle" else {}
        return Observation(log.overflows, "overflows", summary, implied)
    if log.log_format == "paddle":
        # A step without a message can be an overflow that did not lower the scale.
        observed = Observed(observed.scales, np.where(observed.finite == 1, np.int8(-1), observed.finite))
    return _of_steps(observed, resumed)


def _of_steps(observed: Observed, resumed: bool) -> Observation:
    """Return the observation of numbered steps. For a resumed run, the observation starts at the first known scale."""
    known = np.flatnonzero(~np.isnan(observed.scales))
    first = int(known[0]) if resumed and known.size else 0
    scales = observed.scales[known]
    spread = f" from {exact(float(scales.min()))} to {exact(float(scales.max()))}" if known.size else ""
    observed = Observed(observed.scales[first:], observed.finite[first:])
    steps = len(observed.finite)
    flag_count = int(np.count_nonzero(observed.finite != -1))
    flagged = counted(flag_count, "step") if flag_count else "no step"
    if flag_count == steps:
        flagged = "all steps"
    start = f"the first scale, {counted(first, 'step')} after the beginning" if first else "0"
    numbers = f"{counted(steps, 'step')}, {counted(known.size, 'scale')}{spread}, overflow flags for {flagged}"
    return Observation(observed, "steps", f"{numbers}. Steps are counted from {start}.")


def _print(observation: Observation, explanations: Sequence[Explanation]) -> None:
    from .tables import Column, number_columns, trimmed_console

    consistent = [explanation for explanation in explanations if explanation.explains]
    inconsistent = [explanation for explanation in explanations if not explanation.explains]
    with trimmed_console() as console:
        console.print(observation.summary)
        if consistent:
            console.print(_table("consistent", number_columns("overflows", "ambiguous\nsteps"), consistent, console.width))
            if len(consistent) > 1:
                console.print(f"These {len(consistent)} cannot be distinguished; = joins presets with the same rule.")
        else:
            console.print("No published scaler is consistent with these scales.")
        if inconsistent:
            position = number_columns("after\nstep" if observation.unit == "steps" else "at\noverflow")
            columns = [*position, Column("expected", overflow="fold"), Column("observed", no_wrap=True)]
            console.print(_table("inconsistent", columns, inconsistent, console.width))


def _table(title: str, columns: "list[Column]", explanations: Sequence[Explanation], width: int) -> "Table":
    """
    Return a table with one row for all explanations that have the same cells.

    The first column has the width of its longest row, but at most a third of *width*, unless a single name is longer.
    """
    from .tables import Column, table

    groups: dict[tuple[str, ...], dict[Any, list[str]]] = {}  # for each row of cells, the names of the scalers by rule
    for explanation in explanations:
        rules = groups.setdefault(_cells(explanation), {})
        rules.setdefault(explanation.rule or explanation.name, []).append(explanation.name)
    rows = [(", ".join(" = ".join(names) for names in rules.values()), *cells) for cells, rules in groups.items()]
    longest = max(len(explanation.name) for explanation in explanations)
    first = Column(title, width=min(max(len(row[0]) for row in rows), max(longest, width // 3)))
    return table([first, Column("inferred settings", overflow="fold"), *columns], rows)


def _cells(explanation: Explanation) -> tuple[str, ...]:
    inferred = "\n".join(f"{name}={_setting_text(explanation.settings[name])}" for name in explanation.changed) or "-"
    contradiction = explanation.contradiction
    if contradiction is not None:
        position = "start" if contradiction.step < 0 else f"{contradiction.step:,}"
        return inferred, position, *_expected_and_observed(contradiction, explanation.rejection)
    overflows = 0 if explanation.finite is None else np.count_nonzero(~explanation.finite)
    return inferred, f"{overflows:,}", "?" if explanation.ambiguous is None else f"{explanation.ambiguous:,}"


def _setting_text(value: Any) -> str:
    """Return a value as text, such as "0.5"; powers of two from 2^13 on are written as powers, such as "2^16"."""
    if isinstance(value, float) and value >= 2**13 and math.frexp(value)[0] == 0.5:
        return exact(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _expected_and_observed(contradiction: Contradiction, rejection: str) -> tuple[str, str]:
    """
    Return the expected scales and the observed scale as texts, with all digits only if their short forms are equal.

    If no scales were compared, return the reason and "".
    """
    if rejection or contradiction.undecided:
        return rejection or "too many states to search", ""
    for text_of in (exact, repr):
        observed = "-" if math.isnan(contradiction.seen) else text_of(contradiction.seen)
        expected = ["an error" if math.isnan(scale) else text_of(scale) for scale in contradiction.expected]
        if observed not in expected:
            break
    if len(expected) > 3:
        last_scale = [text for text in expected if text != "an error"][-1]
        return f"{len(expected)} others, {expected[0]} to {last_scale}", observed
    return " or ".join(expected) or ("no further step" if observed == "-" else "others"), observed


def _document(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON-serializable values; JSON has neither NaN nor infinity."""
    trace = None if explanation.finite is None else trace_text(explanation.finite)
    return {
        "name": explanation.name,
        "explains": explanation.explains,
        "settings": dict(explanation.settings),
        "changed": explanation.changed,
        "rule": None if explanation.rule is None else asdict(explanation.rule),
        "rejection": explanation.rejection or None,
        "contradiction": _contradiction_document(explanation.contradiction),
        "trace": trace,
        "overflows": None if trace is None else trace.count("x"),
        "ambiguous": explanation.ambiguous,
        "start": explanation.start,
    }


def _contradiction_document(contradiction: Contradiction | None) -> dict[str, Any] | None:
    if contradiction is None:
        return None
    return {
        "step": contradiction.step,
        "expected": [encoded(scale) for scale in contradiction.expected if not math.isnan(scale)],
        "raises": any(math.isnan(scale) for scale in contradiction.expected),
        "seen": None if math.isnan(contradiction.seen) else encoded(contradiction.seen),
        "undecided": contradiction.undecided,
    }
