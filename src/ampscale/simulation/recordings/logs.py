r"""
Reader of training logs: overflows, scales and flags of each step.

A log has messages about overflows, with the scale before or after the overflow, and lines that number the steps. `log_formats`
has the patterns of each project, and `log_steps` computes the flags and scales.

Lightning does not report overflows. Its log is the metrics.csv of CSVLogger, which contains the scale if a training step calls
`self.log("loss_scale", self.trainer.precision_plugin.scaler.get_scale())`. With a DeepSpeed or Apex strategy, a log has the
messages of DeepSpeed or Apex, and is read in that log format.

`step_pattern=r"\| +(?P<step>\d+)/\d+ \["` matches the progress bar of tqdm, which the Hugging Face trainer prints.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from ...parsing import LONGEST_ROW, MOST_STEPS, check_length, cut, excerpt
from ..traces import Observed, Overflow, Trace
from .log_formats import EVERY_RANK, LOG_FORMATS, Event, Lines, count, count_reports, find_events, find_steps
from .log_steps import UnknownStepsError, observe

SUSPECT = re.compile(r"(?>.*?overflow).*?(?:skip|scale)|.*?inf or nan", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Log:
    """
    Contents of a training log.

    Args:
        log_format: Project whose messages were read, one of `LOG_FORMATS`.
        overflows: Reported overflows, in order.
        observed: Scales and flags of the steps; None if the log does not determine the steps of its overflows.
        notes: Sentences about assumptions and omissions.
        missing: Reason why *observed* is None, and the remedy.

    >>> log = read_log("Found inf or nan, current scale is: 8.0, decrease to: 8.0*0.5")
    >>> log.log_format, log.overflows
    ('paddle', (Overflow(line=1, before=8.0, after=4.0),))
    """

    log_format: str
    overflows: tuple[Overflow, ...]
    observed: Observed | None
    notes: tuple[str, ...] = ()
    missing: str = ""

    def trace(self) -> Trace:
        """
        Return the recorded overflow trace.

        Raises:
            ValueError: The flag of a step is unknown; the message contains the remedy.
        """
        if self.observed is None:
            raise ValueError(self.missing)
        return self.observed.trace()


def read_log(text_or_lines: str | Iterable[str], log_format: str | None = None, step_pattern: str | None = None) -> Log:
    r"""
    Read the overflows of a training log, and the scales and flags of its steps.

    Each message is read as one overflow. The step of an overflow is known if every step has a line with its number, or if all
    steps between two such lines overflowed. Such a line follows its step, and has the number of steps so far. The log is assumed
    to begin with the first step of the run. If the first number exceeds the usual difference between successive numbers, the log
    is assumed to begin at the first number minus this difference.

    Copies of a message from several processes are read once. If messages contain a rank, those of the lowest rank are read. If
    messages contain no rank, and the number of equal messages in a row is always a multiple of k, they are read as copies from k
    processes: the messages of successive overflows differ, since each overflow lowers the scale. If messages are about several
    loss scalers, those of the loss scaler with the lowest number are read.

    Args:
        text_or_lines: Log as text, or as an iterable of lines such as an open text file.
        log_format: One of `LOG_FORMATS`. By default the format with the most reports of overflows in the log, then with the most
            matches.
        step_pattern: Regular expression for the lines that end a step, instead of the patterns of the log format. Its group
            `step` matches the number of the step; without this group, each matching line ends one more step.

    Raises:
        TypeError: *text_or_lines* is neither a str nor an iterable of str.
        ValueError: The log contains no messages of a known project or of *log_format*; *step_pattern* is not a regular expression
            or matches nothing, or its group `step` matches anything but digits; there are more than `MOST_STEPS`
            steps; or Lightning's metrics.csv has several columns of scales, an invalid number, or is read with a *step_pattern*.

    >>> message = "OVERFLOW! Skipping step. Attempted loss scale: 8, reducing to 4"
    >>> log = read_log(["step 1", "step 2", message, "step 3"], "megatron", r"step (?P<step>\d)")
    >>> log.trace().limits.tolist()
    [inf, inf, -inf]
    """
    if log_format not in (None, *LOG_FORMATS):
        raise ValueError(f"log_format must be one of {list(LOG_FORMATS)}, got {excerpt(log_format)}")
    text = _text(text_or_lines)
    if log_format in (None, "lightning") and (scale_columns := _scale_columns(text)):
        if step_pattern is not None:
            raise ValueError("Lightning's metrics.csv numbers its steps itself and cannot be read with a step_pattern")
        return _lightning(text, scale_columns)
    events_of = find_events(text)
    log_format, notes = _choose(log_format, events_of, text, step_pattern)
    events = events_of.get(log_format, [])
    if step_pattern is not None:
        events = [event for event in events if event.meaning in ("overflow", "overflow step")] + find_steps(text, step_pattern)
    events = _without_copies(_one_source(sorted(events, key=lambda event: event.position), notes), log_format, notes)
    overflows = tuple(event.overflow() for event in events if event.meaning == "overflow")
    try:
        observed = observe(events, notes)
    except UnknownStepsError as error:
        return Log(log_format, overflows, None, tuple(notes), str(error))
    return Log(log_format, overflows, observed, tuple(notes))


def recognized_formats(text: str) -> tuple[str, ...]:
    """Return the log formats with messages in a log: those with the most reports of overflows first, then the most matches."""
    text = _text(text)
    lightning = ("lightning",) if _scale_columns(text) else ()
    return (*lightning, *find_events(text))


def _text(text_or_lines: Any) -> str:
    """Return the log with line feeds as line ends. A carriage return, which progress bars print, ends a line as well."""
    if not isinstance(text_or_lines, str):
        if isinstance(text_or_lines, bytes) or not isinstance(text_or_lines, Iterable):
            raise TypeError(f"a log must be text or lines of text, got {type(text_or_lines).__name__}")
        lines = list(text_or_lines)
        if invalid := [line for line in lines if not isinstance(line, str)]:
            raise TypeError(f"a log must be text or lines of text, got a line of type {type(invalid[0]).__name__}")
        text_or_lines = "\n".join(line.rstrip("\r\n") for line in lines)
    text: str = text_or_lines
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _choose(
    requested: str | None, events_of: dict[str, list[Event]], text: str, step_pattern: str | None
) -> tuple[str, list[str]]:
    """Return the log format to read, and notes on messages that are not read."""
    log_format = requested or next(iter(events_of), "")
    notes = _unknown_messages(events_of, text)
    # If a log format and a step pattern are given, a log without messages is a run without overflows.
    may_be_silent = requested not in (None, "lightning") and step_pattern is not None
    if log_format not in events_of and not may_be_silent:
        others = [f"but it has messages of {', '.join(events_of)}"] if events_of else []
        reason = f"the log has no known messages of {requested or ', '.join(LOG_FORMATS)}"
        raise ValueError("; ".join([reason, *others, *notes]))
    notes.insert(0, f"read as a log of {log_format}")
    read = {event.position for event in events_of.get(log_format, [])}
    unread = {
        name: count_reports([event for event in events if event.position not in read]) for name, events in events_of.items()
    }
    notes += [f"reports of {name} that were not read: {number}" for name, number in unread.items() if number]
    if log_format == "paddle":
        notes.append("Paddle reports only overflows that lower the scale; others are absent if decr_every_n_nan_or_inf exceeds 1")
    return log_format, notes


def _unknown_messages(events_of: dict[str, list[Event]], text: str) -> list[str]:
    """Return a note on lines that seem to report overflows but match no pattern; [] if there are no such lines."""
    matched = {event.line for events in events_of.values() for event in events}
    lines = Lines(text)
    suspects = (match for match in re.finditer(r"[^\n]+", text) if SUSPECT.match(match[0]))
    unmatched = (match for match in suspects if lines.number(match.start()) not in matched)
    if (first := next(unmatched, None)) is None:
        return []
    line = lines.number(first.start())
    message = excerpt(first[0].strip(), 160)
    line_count = 1 + sum(1 for _ in unmatched)
    label = "lines that seem to report overflows, but match no known message"
    return [f"{label}: {line_count}, the first is line {line}: {message}"]


def _one_source(events: list[Event], notes: list[str]) -> list[Event]:
    """Return the events of one rank and one loss scaler, and add the omitted ranks and loss scalers to *notes*."""
    for meaning in ("overflow", "overflow step", "start", "steps"):
        ranks = sorted({event.rank for event in events if event.meaning == meaning and event.rank is not None})
        if len(ranks) > 1:
            notes.append(f"ranks {excerpt(ranks)} print messages ({meaning}); those of rank {ranks[0]} were read")
            events = [event for event in events if event.meaning != meaning or event.rank in (None, ranks[0])]
    scalers = sorted({count(event.groups["scaler"]) for event in events if "scaler" in event.groups})
    if len(scalers) > 1:
        notes.append(f"loss scalers {excerpt(scalers)} print messages; those of loss scaler {scalers[0]} were read")
        events = [event for event in events if event.groups.get("scaler") in (None, str(scalers[0]))]
    return events


def _without_copies(events: list[Event], log_format: str, notes: list[str]) -> list[Event]:
    """Return *events* with one line for each number of steps and without copies of messages."""
    events = _last_of_each_number(_numbered(events))
    if log_format not in EVERY_RANK:
        return events
    # Equal messages in a row are one run; any other event is a run of its own.
    runs = [list(run) for _, run in groupby(events, lambda event: event.groups if _may_be_copy(event) else event.position)]
    messages = [(run[0].overflow(), len(run)) for run in runs if _may_be_copy(run[0])]
    # Ignore messages at the lower bound: the scale does not change there, so equal messages in a row can be several overflows.
    copies = math.gcd(*(length for overflow, length in messages if overflow.before != overflow.after))
    if copies > 1:
        notes.append(f"each overflow message occurs {copies} times in a row and was read once, assuming {copies} processes")
        runs = [run[: len(run) // copies] if len(run) % copies == 0 else run for run in runs]
    return [event for run in runs for event in run]


def _may_be_copy(event: Event) -> bool:
    return event.meaning == "overflow" and event.rank is None and event.number is None


def _numbered(events: list[Event]) -> list[Event]:
    """Number each overflow by the step that it or a preceding message names, and drop further overflows at the same step."""
    numbered = list[Event]()
    announced_number = previous_number = None
    for event in events:
        if event.meaning == "overflow step":
            announced_number = event.number
        elif event.meaning != "overflow":
            numbered.append(event)
        else:
            number = announced_number if event.number is None else event.number
            if number is None or number != previous_number:
                numbered.append(event._replace(number=number))
            previous_number = number
    return numbered


def _last_of_each_number(events: list[Event]) -> list[Event]:
    """
    Return *events* with only the last line for each number of steps, which also gets the groups of the earlier lines.

    The last line is kept because copies of a message can follow the first line of their step. All lines that number updates are
    kept, because overflows can occur between two of them.
    """
    unique = list[Event]()
    last_line = -1  # index in *unique* of the last event that is not an overflow
    for event in events:
        if event.meaning != "overflow":
            repeats = last_line >= 0 and unique[last_line].meaning == "steps" and unique[last_line].number == event.number
            if repeats and event.meaning == "steps" and "updates" not in event.groups:
                event = event._replace(groups=unique.pop(last_line).groups | event.groups)
            last_line = len(unique)
        unique.append(event)
    return unique


def _scale_columns(text: str) -> list[str]:
    """Return the columns of Lightning's metrics.csv that can contain the scale; [] if the text is not such a file."""
    names = text[:LONGEST_ROW].split("\n", 1)[0].split(",")
    if not {"epoch", "step"} <= set(names):
        return []
    return [name for name in names if "scale" in name.lower() and not name.endswith("_epoch")]


class _Row(NamedTuple):
    """Row of Lightning's metrics.csv with a scale."""

    line: int
    step: int
    scale: float


def _lightning(text: str, columns: list[str]) -> Log:
    """Read Lightning's metrics.csv. Lightning uses torch's scaler: a step overflowed if and only if the next scale is smaller."""
    if len(columns) != 1:
        actual = f"{excerpt(columns)}; use observed_from_csv instead"
        raise ValueError(f"Lightning's metrics.csv must have one column of scales, got {actual}")
    rows = _lightning_rows(text, columns[0])
    notes = [
        f"read as a log of lightning, with {excerpt(columns[0])} as the scale at each step",
        "if the scale was logged at the end of a batch, as in on_train_batch_end, all scales are one step late",
    ]
    if rows[0].step:
        notes.append(f"the log begins after step {rows[0].step}")
    successive = [(row, following) for row, following in pairwise(rows) if following.step == row.step + 1]
    overflows = tuple(
        Overflow(row.line, row.scale, following.scale) for row, following in successive if following.scale < row.scale
    )
    for row, following in pairwise(rows):
        if following.step <= row.step:
            missing = f"the step numbers must increase, got {following.step} after {row.step}; use the lines of one run only"
            return Log("lightning", overflows, None, tuple(notes), missing)
    observed = _lightning_observed(rows)
    if (observed.finite == -1).any():
        notes.append("the log omits steps; Trainer(log_every_n_steps=1) logs all")
    return Log("lightning", overflows, observed, tuple(notes))


def _lightning_observed(rows: list[_Row]) -> Observed:
    """Return the scales in *rows*, and the flags that follow from two successive scales."""
    indices = np.array([row.step for row in rows]) - rows[0].step
    scales = np.full(indices[-1] + 1, np.nan)
    scales[indices] = [row.scale for row in rows]
    unknown = np.isnan(scales)
    with np.errstate(invalid="ignore"):
        finite = np.where(unknown[1:] | unknown[:-1], -1, scales[1:] >= scales[:-1]).astype(np.int8)
    return Observed(scales, finite)


def _lightning_rows(text: str, column: str) -> list[_Row]:
    """Return the rows of metrics.csv that have a scale in *column*."""
    reader = csv.DictReader(_lines(text))
    line = 0
    rows = list[_Row]()
    try:
        for row in reader:
            line = reader.line_num
            if row.get(column):
                rows.append(_Row(line, _step(row["step"]), float(row[column])))
            if len(rows) > MOST_STEPS + 1:
                raise ValueError(f"more than {MOST_STEPS} rows have a scale")
        if not rows:
            raise ValueError("there is no scale")
    except (TypeError, ValueError, KeyError, csv.Error) as error:
        expected = f"1 to {MOST_STEPS + 1} rows with numbers in the columns 'step' and {excerpt(column)}"
        actual = f"an error at line {line}: {cut(str(error))}"
        raise ValueError(f"Lightning's metrics.csv must have {expected}, got {actual}") from None
    return rows


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of *text*. Raise a ValueError at a line that is too long."""
    for match in re.finditer(r"([^\n]*)\n?", text):
        check_length(match[1], LONGEST_ROW, "each row")
        yield match[1]


def _step(text: str) -> int:
    step = int(text) if len(text) <= 18 else -1  # a longer number is out of range, and can be slow to parse
    if not 0 <= step <= MOST_STEPS:
        raise ValueError(f"each step must be a number from 0 to {MOST_STEPS}, got {excerpt(text)}")
    return step
