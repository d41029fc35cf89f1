"""`ampscale identify`: which published scaler explains the scales that were seen."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .describe import exact
from .extras import need
from .rule_arguments import number, parse_settings, value_of
from .trace_options import FILE

if TYPE_CHECKING:  # imported when the command runs
    from rich.table import Table

    from ..simulation.identification.follow_scales import Contradiction
    from ..simulation.identification.identify import Explanation
    from ..simulation.traces import Observed, Overflow

KINDS = {"CSV file": ("scale_column", "overflow_column"), "log": ("log", "log_format", "step_pattern")}  # and what tells them


class Sight(NamedTuple):
    """What was seen: the scales at steps, or overflows where the steps are not known."""

    seen: "Observed | Sequence[Overflow]"
    counted: str  # "steps" or "overflows"
    words: str  # sentences on it
    settings: Mapping[str, Any] = {}  # what its source decides


@click.command()
@click.argument("path", required=False, type=FILE)
@click.option("--scales", metavar="'S S ...'", help="The scale at each step instead of a file; '?' where it was not seen.")
@click.option("--scale-column", metavar="NAME", help="The column of a CSV file with the scale at each step. [default: scale]")
@click.option(
    "--overflow-column",
    metavar="NAME",
    help="Its column that tells overflows. [default: finite, overflow, found_inf or skipped, if there is one]",
)
@click.option("--log", is_flag=True, help="The file is a training log, whatever its name. [default: unless it ends in .csv]")
@click.option("--log-format", metavar="NAME", help="Whose messages the log has. [default: those that are found]")
@click.option("--step-pattern", metavar="REGEX", help="Matches the lines of the log that end a step; group 'step' is its number.")
@click.option("--resumed", is_flag=True, help="The run was taken up at the first scale, with counts that are not known.")
@click.option("--rtol", default=0.0, metavar="R", help="Relative error of scales printed with few digits, as 1e-4. [default: 0]")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="A setting that is known, as hysteresis=2.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def identify(settings: tuple[str, ...], resumed: bool, rtol: float, as_json: bool, **source: Any) -> None:
    """
    Say which published scalers explain the scales of a run, and where the others contradict them.

    The scales come from PATH, a CSV file with a row for each step or a training log, or from --scales. A scaler explains
    them if some pattern of overflows makes it have just these. Its first scale is the first that was seen, its other settings
    are the published ones; where these fail, as few as possible are changed to values that the scales suggest.

    Steps are counted from 0. The exit code is 0 if a scaler explains all, 1 if none does, and 2 for wrong usage.

    \b
    With --json:
      counted         "steps"; or "overflows", where a log tells of nothing else
      explanations    for each preset, the best first
        name, explains
        settings      what it was given: the first scale, --set, and guesses
        changed       the names of what was guessed
        rule          all its constants; or null, if the settings allow none
        refusal       and why
        contradiction null; or where it fails:
          step        the step after which, or the overflow at which, it does
          expected    the scales that it could have had there
          raises      whether it could have raised
          seen        the scale that was seen; "inf", or null for none
          undecided   whether it had too many states to say what it does
        trace         a pattern that explains all: '.' finite, 'x' an overflow
        overflows     how many it has; no pattern has to have as many
        ambiguous     how many steps can be of either kind
        start         the good steps and the overflows that were counted before
    """  # noqa: D301 - click leaves lines alone after a backspace
    from ..simulation.identification.identify import identify as search
    from .trajectories import as_json as written

    try:
        known = {field: value_of(field, word) for field, word in parse_settings(settings).items()}
        sight = _sight(source, resumed)
        if clash := sorted(set(known) & set(sight.settings)):
            raise ValueError(f"{clash[0]} cannot be set, since a log of Paddle shows backoffs and not overflows")
        found = search(sight.seen, settings={**sight.settings, **known}, rtol=rtol, resumed=resumed)
    except (TypeError, ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(written({"counted": sight.counted, "explanations": [_document(each) for each in found]}))
    else:
        need("rich")
        _print(sight, found)
    if not any(each.explains for each in found):
        click.get_current_context().exit(1)


def _sight(source: Mapping[str, Any], resumed: bool) -> Sight:
    """What the options say was seen. What there is to note of a log goes to stderr."""
    if (source["path"] is None) == (source["scales"] is None):
        raise ValueError("scales are wanted from a file or from --scales, and from one of them")
    told = {kind: [name for name in names if source[name]] for kind, names in KINDS.items()}
    kinds = [kind for kind, names in told.items() if names]
    if len(kinds) > 1 or (kinds and source["path"] is None):
        words = (f"--{names[0].replace('_', '-')} goes with a {kind}" for kind, names in told.items() if names)
        raise ValueError(f"{' and '.join(words)}: give what goes with one source")
    if source["scales"] is not None:
        return _of_steps(_from_text(source["scales"]), resumed)
    if (kinds or [_kind_of(source["path"])]) == ["log"]:
        return _from_log(source, resumed)
    return _of_steps(_from_csv(source), resumed)


def _kind_of(path: Path) -> str:
    """What a file is by its name; Lightning's metrics.csv is a log."""
    from ..simulation.recordings.files import read_text
    from ..simulation.recordings.logs import recognised

    return "log" if path.suffix.lower() != ".csv" or "lightning" in recognised(read_text(path)) else "CSV file"


def _from_text(text: str) -> "Observed":
    import numpy as np

    from ..simulation.traces import Observed

    named = {"?": math.nan, "inf": math.inf}
    scales = [named[word] if word in named else number(word) for word in text.replace(",", " ").split()]
    if len(scales) < 2:
        raise ValueError(f"--scales must have at least two scales, got {len(scales)}")
    return Observed(np.array(scales, np.float64), np.full(len(scales) - 1, -1, np.int8))


def _from_csv(source: Mapping[str, Any]) -> "Observed":
    from ..simulation import observed_from_csv

    return observed_from_csv(source["path"], source["scale_column"] or "scale", source["overflow_column"])


def _from_log(source: Mapping[str, Any], resumed: bool) -> Sight:
    import numpy as np

    from ..simulation.recordings.files import read_text
    from ..simulation.recordings.logs import read_log
    from ..simulation.traces import Observed

    log = read_log(read_text(source["path"]), source["log_format"], source["step_pattern"])
    for note in log.notes:
        click.echo(note, err=True)
    if not resumed and any("begins after step" in note for note in log.notes):
        click.echo("it is taken to begin with no counts; with --resumed it may have any", err=True)
    observed = log.observed
    if observed is None or np.count_nonzero(~np.isnan(observed.scales)) < len(log.overflows):
        words = f"{len(log.overflows):,} overflows; which steps lie between them is not told."
        backoffs = log.log_format == "paddle"  # each can have had more overflows before it: nothing tells of the hysteresis
        return Sight(log.overflows, "overflows", words, {"hysteresis": 1} if backoffs else {})
    if log.log_format == "paddle":  # a step without a message can have been an overflow that did not lower the scale
        observed = Observed(observed.scales, np.where(observed.finite == 1, np.int8(-1), observed.finite))
    return _of_steps(observed, resumed)


def _of_steps(observed: "Observed", resumed: bool) -> Sight:
    """A resumed run is taken from its first scale on."""
    import numpy as np

    from ..simulation.traces import Observed

    seen = np.flatnonzero(~np.isnan(observed.scales))
    first = int(seen[0]) if resumed and seen.size else 0
    observed = Observed(observed.scales[first:], observed.finite[first:])
    scales, flags, steps = observed.scales[seen - first], np.count_nonzero(observed.finite != -1), len(observed.finite)
    spread = f" from {exact(float(scales.min()))} to {exact(float(scales.max()))}" if seen.size else ""
    known = "every step" if flags == steps else f"{flags:,} steps" if flags else "no step"
    words = f"{steps:,} steps, {seen.size:,} scales{spread}; whether it overflowed is known of {known}."
    counted = f" Steps are counted from {'0' if not first else f'the first scale, {first:,} steps after the beginning'}."
    return Sight(observed, "steps", words + counted)


def _print(sight: Sight, found: "Sequence[Explanation]") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    explaining = [each for each in found if each.explains]
    with console.capture() as printed:
        console.print(sight.words)
        if explaining:
            console.print(_explaining(explaining, console.width))
            if len(explaining) > 1:
                console.print(f"Nothing that was seen tells these {len(explaining)} apart; = joins those that are one rule here.")
        else:
            console.print("No published scaler explains this.")
        if len(explaining) < len(found):
            console.print(_failing([each for each in found if not each.explains], sight.counted, console.width))
    lines = (line.rstrip() for line in printed.get().splitlines())  # rich fills lines up
    click.echo("\n".join(lines).strip("\n"))


def _explaining(found: "Sequence[Explanation]", width: int) -> "Table":
    """A row for each way to explain what was seen."""
    rows: dict[tuple[str, ...], list[Explanation]] = {}
    for each in found:
        ambiguous = "?" if each.ambiguous is None else f"{each.ambiguous:,}"
        rows.setdefault((_guessed(each), f"{_traced(each).count('x'):,}", ambiguous), []).append(each)
    made = _table("explained by", rows, width)
    made.add_column("overflows", justify="right", no_wrap=True)
    made.add_column("steps of\neither kind", justify="right", no_wrap=True)
    return _filled(made, rows)


def _failing(found: "Sequence[Explanation]", counted: str, width: int) -> "Table":
    """A row for each contradiction."""
    rows: dict[tuple[str, ...], list[Explanation]] = {}
    for each, where in ((each, each.contradiction) for each in found if each.contradiction is not None):
        step = "start" if where.step < 0 else f"{where.step:,}"
        rows.setdefault((_guessed(each), step, *_parted(where, each.refusal)), []).append(each)
    made = _table("contradicted", rows, width)
    made.add_column("after\nstep" if counted == "steps" else "at\noverflow", justify="right", no_wrap=True)
    made.add_column("expected", overflow="fold")
    made.add_column("seen", no_wrap=True)
    return _filled(made, rows)


def _table(title: str, rows: "Mapping[tuple[str, ...], Sequence[Explanation]]", width: int) -> "Table":
    """An empty table. Its first column has room for each name, and else at most a third."""
    from rich import box
    from rich.table import Table

    longest = max(len(each.name) for alike in rows.values() for each in alike)
    made = Table(box=box.SIMPLE_HEAD, padding=0)
    made.add_column(title, width=min(max(len(_names(alike)) for alike in rows.values()), max(longest, width // 3)))
    made.add_column("guessed settings", overflow="fold")
    return made


def _filled(made: "Table", rows: "Mapping[tuple[str, ...], Sequence[Explanation]]") -> "Table":
    for cells, alike in rows.items():
        made.add_row(_names(alike), *cells)
    return made


def _names(found: "Iterable[Explanation]") -> str:
    """The presets, those that are one rule side by side."""
    rules: dict[Any, list[str]] = {}
    for each in found:
        rules.setdefault(each.rule or each.name, []).append(each.name)
    return ", ".join(" = ".join(names) for names in rules.values())


def _guessed(each: "Explanation") -> str:
    return "\n".join(f"{name}={_setting(each.settings[name])}" for name in each.changed) or "-"


def _setting(value: Any) -> str:

    if isinstance(value, float) and value >= 2**13 and math.frexp(value)[0] == 0.5:
        return exact(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parted(where: "Contradiction", refusal: str) -> tuple[str, str]:
    """What was expected and what was seen, in as few digits as tell the two apart."""
    if refusal or where.undecided:
        return refusal or "too many states to say more", ""
    for write in (exact, repr):
        seen = "-" if math.isnan(where.seen) else write(where.seen)
        expected = ["a stop" if math.isnan(scale) else write(scale) for scale in where.expected]
        if seen not in expected:
            break
    if len(expected) > 3:
        return f"{len(expected)} others, {expected[0]} to {[each for each in expected if each != 'a stop'][-1]}", seen
    return " or ".join(expected) or ("no step more" if seen == "-" else "others"), seen


def _traced(each: "Explanation") -> str:
    """The pattern that explains all, as a text; empty where there is none."""
    return "" if each.finite is None else "".join(".x"[not finite] for finite in each.finite.tolist())


def _document(each: "Explanation") -> dict[str, Any]:
    """One explanation, for JSON."""
    return {
        "name": each.name,
        "explains": each.explains,
        "settings": dict(each.settings),
        "changed": each.changed,
        "rule": None if each.rule is None else json.loads(each.rule.to_json()),
        "refusal": each.refusal or None,
        "contradiction": None if each.contradiction is None else _parting(each.contradiction),
        "trace": _traced(each) if each.explains else None,
        "overflows": _traced(each).count("x") if each.explains else None,
        "ambiguous": each.ambiguous,
        "start": each.start,
    }


def _parting(where: "Contradiction") -> dict[str, Any]:
    """A contradiction, for JSON, which has neither NaN nor infinity."""
    return {
        "step": where.step,
        "expected": ["inf" if math.isinf(scale) else scale for scale in where.expected if not math.isnan(scale)],
        "raises": any(math.isnan(scale) for scale in where.expected),
        "seen": None if math.isnan(where.seen) else "inf" if math.isinf(where.seen) else where.seen,
        "undecided": where.undecided,
    }
