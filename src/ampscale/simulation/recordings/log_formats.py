r"""
Patterns for the messages of training logs about overflows, scales and steps.

`MESSAGES` lists all known messages; a new project or version requires only new entries. An entry has a log format, a meaning
and a pattern. A pattern starts with literal characters, so that long logs are searched fast. The groups of patterns are:

    before, unchanged      the scale before an overflow, and a scale that the overflow leaves unchanged
    after, reduced         the scale after an overflow; one pattern needs both names, since it has two such groups
    ratio                  the scale after an overflow divided by the scale before it
    hysteresis             the number of overflows until the scale backs off
    rank, scaler           the rank of the process, and the number of the loss scaler, that the message is about
    index                  the number of steps before the overflow
    steps, updates         the number of steps so far, including (steps) or excluding (updates) overflows
    total, skipped         the number of overflows, since the start of the run (total) or since the last such number (skipped)
    scale, rounded         the scale after these steps, with all its digits or rounded
    fraction               matches if the time has a fraction of a second
    inner                  matches if the line follows a finite step
"""

import math
import re
from heapq import merge
from itertools import islice, repeat
from typing import NamedTuple

import numpy as np

from ...parsing import MOST_MESSAGES, excerpt
from ..traces import Overflow

LOG_FORMATS = ("apex", "deepspeed", "paddle", "megatron", "fairseq", "lightning")
EVERY_RANK = ("apex", "deepspeed", "paddle")  # projects whose messages every process prints, without its rank


def before_next(word: str) -> str:
    """
    Return a pattern that matches up to the next *word* in the line.

    The pattern cannot match *word* itself, so a search with several such patterns takes linear time.
    """
    first = word[0]
    return rf"[^{first}\n]*(?:{first}(?!{word[1:]})[^{first}\n]*)*"


ATTEMPTED = r"\. Attempted loss scale: (?P<before>#), reducing to (?P<after>#)"
UNCHANGED = r"\. Attempted loss scale: (?P<unchanged>#), but hysteresis is (?P<hysteresis>\d+)"
GRADIENT = r"Gradient overflow\. +Skipping step, (?:loss scaler (?P<scaler>\d+) )?"
# Exclude messages with the prefix of DeepSpeed, which has patterns of its own.
CAPITALS = r"OVERFLOW(?<!deepspeed\] OVERFLOW)(?<!deepscale\] OVERFLOW)(?: within closure)?! Skipping step"
LOADED = rf"successfully loaded checkpoint from {before_next('successfully loaded')} at iteration (?P<steps>\d+)"
ZERO = r"\[deeps(?:peed|cale)\] (?:OVERFLOW!|fp16 dynamic loss scale overflow!)(?: Rank (?P<rank>-?\d+))? Skipping step"
ITERATION = r"iteration(?:(?<=:\d\d\.\d{6}\] iteration)(?P<fraction>))? +(?P<steps>\d+)/ *\d+ \|"
TO_NEXT = before_next(r"iteration +\d")
SKIPPED = rf"(?:{TO_NEXT} loss scale: (?P<scale>#) \|)?(?:{TO_NEXT} number of skipped iterations: +(?P<skipped>\d+) \|)?"
# Exclude progress bars, which print the numbers of an earlier step.
NO_BAR = r"(?!\d)(?!(?:, (?!\w*num_updates)\w++=[^,\]\n]*+)*+(?:\]|, \w*num_updates))"
ROUNDED = rf"(?:{before_next('num_updates')}loss_scale[^\w\n]{{1,4}}(?P<rounded>#))?"
UPDATES = r"num_updates[^\w\n]{1,4}(?P<updates>\d+)" + NO_BAR + ROUNDED

MESSAGES = (
    # Apex: amp, and fp16_utils since 2019; amp of 2018; fp16_utils of 2018 and early 2019; FP16_Optimizer of contrib
    ("apex", "overflow", GRADIENT + r"reducing loss scale to (?P<after>#)"),
    ("apex", "overflow", r"Gradient overflow, skipping update"),
    ("apex", "overflow", CAPITALS + "(?:" + ATTEMPTED + r"|, reducing loss scale to (?P<reduced>#))"),
    ("apex", "overflow", r"Grad overflow on iteration (?P<index>\d+)\s+Using \w+ loss scale of (?P<before>#)"),
    # DeepSpeed 0.1 to 0.16: ZeRO and FP16_Optimizer (2 entries); FP16_Optimizer before its message; engine; pipeline engine
    ("deepspeed", "overflow", ZERO + "(?:" + ATTEMPTED + "|" + UNCHANGED + ")?"),
    ("deepspeed", "overflow", r"\[Rank (?P<rank>-?\d+)\] Overflow detected\. Skipping step" + ATTEMPTED),
    ("deepspeed", "overflow step", r"Grad overflow on iteration:? (?P<index>\d+)\b(?!\s+Using)"),
    ("deepspeed", "steps", r"ank[: ](?P<rank>-?\d+)\]? step=(?P<steps>\d+), skipped=(?P<total>\d+)"),
    ("deepspeed", "steps", r"steps: (?<!\wsteps: )(?P<steps>\d+) loss: "),
    # Paddle 2.0 to 3.3: GradScaler; the trainer of PaddleNLP
    ("paddle", "overflow", r"Found inf or nan, current scale is: (?P<before>#), decrease to: #\*(?P<ratio>#)"),
    ("paddle", "steps", r"global_step: (?P<steps>\d+)"),
    # Megatron 1.0; 2.0 to core 0.19 (2 entries)
    ("megatron", "overflow", CAPITALS + ATTEMPTED),
    ("megatron", "start", LOADED),
    ("megatron", "steps", ITERATION + SKIPPED),
    # fairseq 0.5 to 0.12: fp16 and amp; start of a run (2 entries); train_inner since 0.10; formats simple and json, end of epoch
    ("fairseq", "overflow", r"overflow detected, (?:ignoring gradient, )?setting (?:loss )?scale to:?(?: to)? (?P<after>#)"),
    ("fairseq", "start", rf"oaded checkpoint {before_next('oaded checkpoint ')} @ (?P<updates>\d+) updates"),
    ("fairseq", "start", r"o existing checkpoint found"),
    ("fairseq", "steps", r"train_inner(?P<inner>)\b(?:[^t\n]|t(?!rain_inner))*?" + UPDATES),
    ("fairseq", "steps", UPDATES),
)
NUMBER = r"(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)"  # replaces # in the patterns
PATTERNS = [(log_format, meaning, re.compile(pattern.replace("#", NUMBER))) for log_format, meaning, pattern in MESSAGES]
LAUNCHER = re.compile(r"\[(?:default|rank)(\d+)\]:|\[\d+,(\d+)\]<std(?:out|err)>:")  # torchrun --tee, mpirun --tag-output


class Event(NamedTuple):
    """Match of a pattern in a log."""

    position: int  # index of the first character in the log
    line: int  # line number, counted from 1
    meaning: str  # "overflow"; "overflow step": step of the next overflows; "steps": steps so far; "start": steps before the run
    groups: dict[str, str]  # texts of the groups that matched
    rank: int | None  # rank of the process that printed the message; None if unknown
    number: int | None  # value of the group index, steps or updates; 0 for a start without such a group

    def overflow(self) -> Overflow:
        """Return the overflow that the message reports."""
        before = _scale(self.groups.get("before") or self.groups.get("unchanged"))
        after = _scale(self.groups.get("after") or self.groups.get("reduced") or self.groups.get("unchanged"))
        if ratio := self.groups.get("ratio"):
            with np.errstate(all="ignore"):
                after = float(np.float32(before) * np.float32(float(ratio)))  # rounds like Paddle
        return Overflow(self.line, before, after)

    def scale_after(self) -> float:
        """
        Return the scale after the steps so far; NaN if it is unknown, or if the printed digits do not determine it.

        Megatron prints one decimal, and fairseq six significant digits.
        """
        if text := self.groups.get("scale"):
            # Other texts can be rounded, such as 0.1 for 0.125.
            is_exact = text in ("0.5", "inf") or (text.endswith(".0") and text != "0.0")
            return float(text) if is_exact else math.nan
        value = float(self.groups.get("rounded") or math.nan)
        power = 2.0 ** round(math.log2(value)) if 0 < value < 2.0**1023 else math.nan
        return power if value in (power, float(f"{power:g}")) else math.nan


def find_events(text: str) -> dict[str, list[Event]]:
    """Return the events by log format: formats with the most reports of overflows first, then with the most events."""
    events_of = dict[str, list[Event]]()
    for log_format in LOG_FORMATS:
        matches = [zip(pattern.finditer(text), repeat(meaning)) for name, meaning, pattern in PATTERNS if name == log_format]
        lines = Lines(text)
        events = list[Event]()
        end = 0  # of the previous match
        for match, meaning in merge(*matches, key=lambda item: item[0].start()):
            if match.start() >= end:  # keep only the first of overlapping matches
                groups = {group: value for group, value in match.groupdict().items() if value is not None}
                events.append(_event(lines, meaning, match.start(), groups))
                end = match.end()
                _check_messages(len(events) + sum(map(len, events_of.values())))
        if events:
            events_of[log_format] = events
    return dict(sorted(events_of.items(), key=lambda item: (count_reports(item[1]), len(item[1])), reverse=True))


def find_steps(text: str, pattern: str) -> list[Event]:
    """Return an event for each match of *pattern*, or for each line with a match if *pattern* has no group `step`."""
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"step_pattern must be a regular expression, got {excerpt(pattern)}: {error}") from None
    matches = list(islice(compiled.finditer(text), MOST_MESSAGES + 1))
    _check_messages(len(matches))
    if not matches:
        raise ValueError(f"step_pattern {excerpt(pattern)} matches nothing in the log")
    lines = Lines(text)
    if "step" not in compiled.groupindex:
        events = list[Event]()
        for match in matches:
            if not events or events[-1].line < lines.number(match.start()):  # the first match in its line
                events.append(_event(lines, "steps", match.start(), {"steps": str(len(events) + 1)}))
        return events
    if invalid := next((match for match in matches if not (match["step"] or "").isdecimal()), None):
        actual = f"{excerpt(invalid['step'])} in {excerpt(invalid[0])}"
        raise ValueError(f"the group 'step' of step_pattern must match digits only, got {actual}")
    return [_event(lines, "steps", match.start(), {"steps": match["step"]}) for match in matches]


def count_reports(events: list[Event]) -> int:
    """Return how many events report an overflow or a number of overflows, which can be 0."""
    return sum(event.meaning == "overflow" or "total" in event.groups or "skipped" in event.groups for event in events)


class Lines:
    """Line numbers of a text, computed in ascending order. A list of all line ends would take 40 bytes per line."""

    def __init__(self, text: str) -> None:
        self.text, self.start, self._position, self._number = text, 0, 0, 1

    def number(self, position: int) -> int:
        """Return the line number of *position*, which must not decrease between calls, and set `start` to the line's start."""
        if passed := self.text.count("\n", self._position, position):
            self._number += passed
            self.start = self.text.rindex("\n", self._position, position) + 1
        self._position = position
        return self._number


def _check_messages(number: int) -> None:
    if number > MOST_MESSAGES:
        raise ValueError(f"a log must have at most {MOST_MESSAGES} messages, got more; use a part of the log")


def _event(lines: Lines, meaning: str, position: int, groups: dict[str, str]) -> Event:
    """Return the event of a match. Its rank is in the message, or in the prefix that a launcher adds to the line."""
    line = lines.number(position)
    launcher = LAUNCHER.match(lines.text, lines.start)
    rank = groups.get("rank") or (launcher[1] or launcher[2] if launcher else "")
    number = groups.get("index") or groups.get("steps") or groups.get("updates") or ("0" if meaning == "start" else "")
    return Event(position, line, meaning, groups, _count_or_none(rank), _count_or_none(number))


def count(digits: str) -> int:
    """Parse a number of steps, ranks or overflows. A number with more than 18 digits becomes 10**18."""
    return int(digits) if len(digits) <= 18 else 10**18


def _count_or_none(digits: str) -> int | None:
    return count(digits) if digits else None


def _scale(text: str | None) -> float:
    """Parse the scale in a message; NaN if unknown. DeepSpeed truncates scales below 1 to 0, so 0 means unknown."""
    return math.nan if text is None or text == "0" else float(text)
