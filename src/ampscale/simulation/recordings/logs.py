r"""
What training logs say of overflows and scales, step by step.

A log has messages of overflows, each with the scale before or after it, and lines that number the steps: `log_formats` has the
words of each project, and `windows` says what follows for the steps.

Lightning prints nothing when its scaler meets an overflow. Its log is the metrics.csv of its CSVLogger, where a column can hold
the scale, as after `self.log("loss_scale", self.trainer.precision_plugin.scaler.get_scale())` in a training step. A strategy
or plugin prints its own project's messages, DeepSpeed's or Apex's, and such a log is read as theirs.

A progress bar of tqdm, as the Hugging Face trainer's, numbers the steps for `step_pattern=r"\| +(?P<step>\d+)/\d+ \["`.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from ...parsing import LONGEST_ROW, MOST_STEPS, check_length, cut, excerpt
from ..traces import Observed, Overflow, Trace
from .log_formats import EVERY_RANK, LOG_FORMATS, Event, Lines, count, find_events, find_steps, reports
from .log_steps import UnplacedError, observe

SUSPECT = re.compile(r"(?>.*?overflow).*?(?:skip|scale)|.*?inf or nan", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Log:
    """
    What a log says.

    Args:
        log_format: Whose words it was read as, one of `LOG_FORMATS`.
        overflows: The overflows that it reports, in order.
        observed: What it says of each step; None where it does not say at which steps the overflows were.
        notes: Sentences: what was decided in reading it, and what was left out.
        missing: Why *observed* is None, and which option helps.
    """

    log_format: str
    overflows: tuple[Overflow, ...]
    observed: Observed | None
    notes: tuple[str, ...] = ()
    missing: str = ""

    def trace(self) -> Trace:
        """
        The recorded trace.

        Raises:
            ValueError: The log does not say of every step whether it was finite; the message says what is missing.
        """
        if self.observed is None:
            raise ValueError(self.missing)
        return self.observed.trace()


def read_log(text_or_lines: str | Iterable[str], log_format: str | None = None, step_pattern: str | None = None) -> Log:
    r"""
    Read a training log.

    A message is one overflow. Which step it speaks of is known where each step has a line with its number, and wherever
    between two such lines all steps overflowed, or none. A line stands at the end of its step, and its number counts steps.
    The log is taken to begin with the first step, or, where its first number is larger than its numbers are apart, as far
    before that number as they mostly are apart.

    The same message from several processes is one overflow. Where messages name a rank, those of the lowest rank are taken.
    Where they do not, and equal messages always stand k in a row, or 2k, ..., they are taken for k copies: two overflows in a
    row differ, since the second starts from the reduced scale. Of several loss scalers, the one with the lowest number is taken.

    Args:
        text_or_lines: The log, as text, or as lines, so also an open text file.
        log_format: One of `LOG_FORMATS`. By default the one with most reports of overflows in the log, then with most matches.
        step_pattern: A regular expression for the lines that end a step, in place of the log_format's own: with a group `step`
            for the number; or without, and then each matching line ends one more step.

    Raises:
        TypeError: *text_or_lines* is neither text nor lines of text.
        ValueError: No log_format is recognised, or not *log_format*; *step_pattern* is no regular expression, matches nothing, or
            its group `step` is no whole number; there are more than `MOST_STEPS` steps; or Lightning's metrics.csv has several
            scales, one that is no number, or a step_pattern.
    """
    if log_format not in (None, *LOG_FORMATS):
        raise ValueError(f"log_format must be one of {list(LOG_FORMATS)}, got {excerpt(log_format)}")
    text = _text(text_or_lines)
    if log_format in (None, "lightning") and _scale_columns(text):
        if step_pattern is not None:
            raise ValueError("Lightning's metrics.csv numbers its steps itself: step_pattern is for other logs")
        return _lightning(text)
    found = find_events(text)
    log_format, notes = _choose(log_format, found, text, step_pattern)
    events = found.get(log_format, [])
    if step_pattern is not None:
        events = [event for event in events if event.meaning in ("overflow", "place")] + find_steps(text, step_pattern)
    events = _once(_one_speaker(sorted(events, key=lambda event: event.at), notes), log_format, notes)
    overflows = tuple(event.overflow() for event in events if event.meaning == "overflow")
    try:
        observed = observe(events, notes)
    except UnplacedError as error:
        return Log(log_format, overflows, None, tuple(notes), str(error))
    return Log(log_format, overflows, observed, tuple(notes))


def recognised(text: str) -> tuple[str, ...]:
    """The log_formats that have words in a log; first the one with most reports of overflows, then with most matches."""
    text = _text(text)
    return ("lightning",) * bool(_scale_columns(text)) + tuple(find_events(text))


def _text(text_or_lines: Any) -> str:
    """The log with one kind of line ends. A progress bar that returns to the beginning of its line ends it."""
    if not isinstance(text_or_lines, str):
        if isinstance(text_or_lines, bytes) or not isinstance(text_or_lines, Iterable):
            raise TypeError(f"a log must be text or lines of text, got {type(text_or_lines).__name__}")
        lines = list(text_or_lines)
        if wrong := [line for line in lines if not isinstance(line, str)]:
            raise TypeError(f"a log must be text or lines of text, got a line of type {type(wrong[0]).__name__}")
        text_or_lines = "\n".join(line.rstrip("\r\n") for line in lines)
    text: str = text_or_lines
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _choose(asked: str | None, found: dict[str, list[Event]], text: str, step_pattern: str | None) -> tuple[str, list[str]]:
    """The log_format to read, and notes on what is then not read."""
    log_format, notes = asked or next(iter(found), ""), _not_understood(found, text)
    may_be_silent = asked not in (None, "lightning") and step_pattern is not None  # there are steps, and no overflow in them
    if log_format not in found and not may_be_silent:
        there = [f"but of {', '.join(found)}"] if found else []
        raise ValueError("; ".join([f"the log has no known words of {asked or ', '.join(LOG_FORMATS)}", *there, *notes]))
    notes.insert(0, f"the log was read as {log_format}'s")
    read = {event.at for event in found.get(log_format, [])}
    others = {name: reports([event for event in events if event.at not in read]) for name, events in found.items()}
    notes += [f"{count} reports of {name} in it were not read" for name, count in others.items() if count]
    if log_format == "paddle":
        notes.append("Paddle reports an overflow that lowers the scale: with decr_every_n_nan_or_inf above 1 that is not each")
    return log_format, notes


def _not_understood(found: dict[str, list[Event]], text: str) -> list[str]:
    heard = {event.line for events in found.values() for event in events}
    lines = Lines(text)
    suspects = (found for found in re.finditer(r"[^\n]+", text) if SUSPECT.match(found[0]))
    missed = (found for found in suspects if lines.number(found.start()) not in heard)
    if (first := next(missed, None)) is None:
        return []
    line, words = lines.number(first.start()), excerpt(first[0].strip(), 400)
    number = 1 + sum(1 for _ in missed)
    return [f"{number} lines that seem to speak of overflows were not understood, the first is line {line}, {words}"]


def _one_speaker(events: list[Event], notes: list[str]) -> list[Event]:
    """The events without those of all ranks but one, and of all scalers but one."""
    for meaning in ("overflow", "place", "start", "steps"):
        ranks = sorted({event.rank for event in events if event.meaning == meaning and event.rank is not None})
        if len(ranks) > 1:
            notes.append(f"ranks {excerpt(ranks)} speak, of {meaning}: rank {ranks[0]} was read")
            events = [event for event in events if event.meaning != meaning or event.rank in (None, ranks[0])]
    scalers = sorted({count(event.groups["scaler"] or "0") for event in events if event.has("scaler")})
    if len(scalers) > 1:
        notes.append(f"loss scalers {excerpt(scalers)} speak: loss scaler {scalers[0]} was read")
        events = [event for event in events if event.groups.get("scaler") in (None, str(scalers[0]))]
    return events


def _once(events: list[Event], log_format: str, notes: list[str]) -> list[Event]:
    """The events without repetitions of a number of steps, and without copies of a message."""

    def words(event: Event) -> tuple[str | None, ...] | int:
        copied = event.meaning == "overflow" and log_format in EVERY_RANK and event.rank is None and event.number is None
        return tuple(event.groups.values()) if copied else event.at

    runs = [list(run) for _, run in groupby(_numbered_once(_placed(events)), words)]
    messages = [run for run in runs if isinstance(words(run[0]), tuple)]
    # At the floor the scale stays, and equal messages in a row can be several overflows.
    moving = [len(run) for run in messages if run[0].overflow().before != run[0].overflow().after]
    copies = math.gcd(*moving)
    if copies > 1:
        notes.append(f"each message of an overflow stands {copies} times in a row: it was read once, as from {copies} processes")
        runs = [run[: len(run) // copies] if len(run) % copies == 0 else run for run in runs]
    return [event for run in runs for event in run]


def _placed(events: list[Event]) -> list[Event]:
    """The overflows with the place that they, or the words before them, name. A second one at the same place is a copy."""
    placed, place, last = list[Event](), None, None
    for event in events:
        if event.meaning == "place":
            place = event.number
        elif event.meaning != "overflow":
            placed.append(event)
        else:
            number = place if event.number is None else event.number
            if number is None or number != last:
                placed.append(event._replace(number=number))
            last = number
    return placed


def _numbered_once(events: list[Event]) -> list[Event]:
    """
    The events with one line for each number of steps, the last, since copies of a message may come after the first line of
    their step. Of updates all stay: overflows may lie between two lines of one number.
    """
    kept, last = list[Event](), -1
    for event in events:
        if event.meaning != "overflow":
            again = last >= 0 and kept[last].meaning == "steps" and kept[last].number == event.number
            if again and event.meaning == "steps" and not event.has("updates"):
                groups = kept.pop(last).groups
                event = event._replace(groups=groups | {name: read for name, read in event.groups.items() if read is not None})
            last = len(kept)
        kept.append(event)
    return kept


def _scale_columns(text: str) -> list[str]:
    """The columns of Lightning's metrics.csv that can hold a scale."""
    names = text[:LONGEST_ROW].split("\n", 1)[0].split(",")
    if not {"epoch", "step"} <= set(names):
        return []
    return [name for name in names if "scale" in name.lower() and not name.endswith("_epoch")]


def _lightning(text: str) -> Log:
    """
    What Lightning's metrics.csv says. Its scaler is torch's, in which every overflow lowers the scale and nothing else does, so
    that the scales of a step and the next tell whether it overflowed.
    """
    columns = _scale_columns(text)
    if len(columns) != 1:
        raise ValueError(
            f"Lightning's metrics.csv must have one column for the scale, got {excerpt(columns)}; see observed_from_csv"
        )
    reader, line = csv.DictReader(_lines(text)), 0
    seen = list[tuple[int, int, float]]()
    try:
        for row in reader:
            line = reader.line_num
            if row.get(columns[0]):
                seen.append((line, _step(row["step"]), float(row[columns[0]])))
            if len(seen) > MOST_STEPS + 1:
                raise ValueError(f"more than {MOST_STEPS} rows have a scale")
        if not seen:
            raise ValueError("there is no scale")
        first = seen[0][1]
    except (TypeError, ValueError, KeyError, csv.Error) as error:
        wanted = f"numbers in the columns 'step' and {excerpt(columns[0])}"
        raise ValueError(f"Lightning's metrics.csv must have {wanted}, at line {line}: {cut(str(error))}") from None
    notes = [
        f"the log was read as lightning's, with {excerpt(columns[0])} as the scale in force at a step",
        "a scale that was logged at the end of a batch, as in on_train_batch_end, is the next step's: then all is one step late",
    ]
    pairs = list(pairwise(seen))
    fell = [(line, before, after) for (line, one, before), (_, two, after) in pairs if two == one + 1 and after < before]
    overflows = tuple(Overflow(*each) for each in fell)
    if first:
        notes.append(f"the log begins after step {first}")
    if back := [(one, two) for (_, one, _), (_, two, _) in pairs if two <= one]:
        missing = f"the steps go back from {back[0][0]} to {back[0][1]}: give the part of the log that is one run"
        return Log("lightning", overflows, None, tuple(notes), missing)
    places = np.array([step for _, step, _ in seen]) - first
    scales = np.full(places[-1] + 1, np.nan)
    scales[places] = [scale for _, _, scale in seen]
    unknown = np.isnan(scales)
    with np.errstate(invalid="ignore"):
        finite = np.where(unknown[1:] | unknown[:-1], -1, scales[1:] >= scales[:-1]).astype(np.int8)
    if (finite == -1).any():
        notes.append("the log leaves out steps: Trainer(log_every_n_steps=1) logs each")
    return Log("lightning", overflows, Observed(scales, finite), tuple(notes))


def _lines(text: str) -> Iterator[str]:
    at = 0
    while at <= len(text):
        end = text.find("\n", at) % (len(text) + 1)
        check_length(line := text[at:end], LONGEST_ROW, "each row")
        yield line
        at = end + 1


def _step(text: str) -> int:
    step = int(text) if len(text) <= 18 else -1
    if not 0 <= step <= MOST_STEPS:
        raise ValueError(f"each step must be a number from 0 to {MOST_STEPS}, got {excerpt(text)}")
    return step
