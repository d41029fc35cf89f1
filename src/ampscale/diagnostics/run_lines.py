"""Parser of the lines of a run file that contain steps. Many lines are parsed at once, since a run can have millions of them."""

import json
import math
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..parsing import excerpt, parse_json, reject_constant
from .records import Histogram, StepRecord, from_json, statistics_of
from .verdicts import Diagnosis, Verdict

# Columns of a `Run` in their order, which are also the members of most lines.
COLUMNS: dict[str, Any] = {
    "step": np.int64, "scale": np.float64, "next_scale": np.float64, "finite": np.bool_, "applied": np.bool_,
    "loss": np.float64, "norm": np.float64,
}  # fmt: skip
_OPTIONAL = ("loss", "norm")
# Reduce plain lines to numbers and commas: line feeds become commas, and the "u" of "true", the only "u" in a line, becomes 1.
_NUMBERS_ONLY = bytes.maketrans(b"u\n", b"1,")
# The "e" of an exponent is not deleted, since `_fill_plain` makes it an "E" before.
_DELETED = b'{}":_abcdfghijklmnopqrstvwxyze'


def _line_pattern(names: Iterable[str]) -> str:
    """Return a regular expression for consecutive lines of applied steps that have the members *names*."""
    number = "-?[0-9.]++(?:e-[0-9]++)?+"
    members = (f'"{name}":{"true" if COLUMNS[name] is np.bool_ else number}' for name in names)
    return rf"((?:\{{{','.join(members)}\}}\n)++)"


# Members of plain lines: all columns, or all without the optional ones.
_LAYOUTS = [[name for name in COLUMNS if name not in left_out] for left_out in ((), ("loss",), ("norm",), _OPTIONAL)]
_PLAIN = re.compile("|".join(map(_line_pattern, _LAYOUTS)).encode())


class Histograms(NamedTuple):
    """Histograms of all gradients in one step, as int64 arrays."""

    lowest: np.ndarray  # exponent of the first bin of each gradient
    lengths: np.ndarray  # number of bins of each gradient
    counts: np.ndarray  # bins of all gradients, one gradient after the other

    def bins(self) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays with one entry for each bin in `counts`: the index of the gradient, and the exponent."""
        gradients = np.repeat(np.arange(self.lengths.size), self.lengths)
        first = np.cumsum(self.lengths) - self.lengths
        return gradients, np.arange(self.counts.size) - first[gradients] + self.lowest[gradients]

    def tuples(self) -> tuple[Histogram, ...]:
        """Return one `Histogram` for each gradient."""
        rows = np.split(self.counts, np.cumsum(self.lengths)[:-1])
        return tuple(Histogram(int(low), tuple(row.tolist())) for low, row in zip(self.lowest, rows, strict=True))


class Measurement(NamedTuple):
    """Statistics and histograms of one step; None if they were not measured."""

    position: int  # index of the step in the columns of the `Run`
    scale: float  # factor by which the measured gradients were scaled; 1.0 if it is unknown
    statistics: np.ndarray | None  # one row for each gradient, with the columns of `TensorStatistics`: int64
    histograms: Histograms | None

    @property
    def gradient_count(self) -> int:
        """Return the number of measured gradients."""
        if self.statistics is not None:
            return len(self.statistics)
        return len(self.histograms.lowest) if self.histograms else 0

    def members(self) -> dict[str, Any]:
        """Return those of the fields `tensors` and `histograms` of the `StepRecord` that were measured."""
        tensors = {} if self.statistics is None else {"tensors": statistics_of(self.statistics.tolist())}
        return tensors if self.histograms is None else {**tensors, "histograms": self.histograms.tuples()}


def parse_lines(
    text: bytes, first: int
) -> tuple[dict[str, np.ndarray], dict[int, StepRecord], list[Measurement], list[Diagnosis]]:
    """
    Return the columns, the `Run.others`, the measurements and the diagnoses of some steps, as parts of a `Run`.

    Args:
        text: Lines of steps, each with a line feed.
        first: Index in the run of the first of these steps.

    Raises:
        ValueError, TypeError, LookupError, OverflowError, RecursionError: A line is not valid. The caller obtains the reason from
            `check_line`.
    """
    columns = empty_columns(text.count(b"\n"))
    others = _fill_plain(columns, text)
    entries = _entries([line for _, line in others])
    records = {index: _record(entry) for (index, _), entry in zip(others, entries, strict=True)}
    for name, column in columns.items():
        values = [getattr(record, name) for record in records.values()]
        column[list(records)] = [math.nan if value is None else value for value in values]
    records_of_run = {first + index: record for index, record in records.items()}
    measurements = map(_measurement, records_of_run, records.values(), entries)
    diagnoses = [_diagnosis(entry) for entry in entries if "diagnosis" in entry]
    return columns, records_of_run, [measurement for measurement in measurements if measurement.gradient_count], diagnoses


def empty_columns(steps: int) -> dict[str, np.ndarray]:
    """Return columns of length *steps*, in which optional numbers are NaN and all others zero."""
    return {name: np.full(steps, math.nan if name in _OPTIONAL else 0, dtype) for name, dtype in COLUMNS.items()}


def check_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object in *line*. Raise a ValueError with the reason if the line is not valid."""
    entry = parse_json(line)
    if not isinstance(entry, dict):
        raise ValueError(f"a step must be a JSON object, got {excerpt(entry)}")
    if "format" in entry:
        raise ValueError("a run file must have one header, in line 1: write each run to a file of its own")
    from_json({name: value for name, value in entry.items() if name != "diagnosis"})
    if "diagnosis" in entry:
        _diagnosis(entry)
    return entry


def _fill_plain(columns: dict[str, np.ndarray], text: bytes) -> list[tuple[int, bytes]]:
    """
    Parse the lines of applied steps without measurements into *columns*, and return all other lines with their indices.

    The numbers of many such lines are parsed as one long list, which takes a third of the time of parsing objects.
    """
    blocks_of = _blocks(text)
    others = blocks_of.pop(None, [])
    for layout, blocks in blocks_of.items():
        joined = b"".join(block for _, block in blocks).replace(b"e-", b"E-")
        names = _LAYOUTS[layout - 1]  # layouts are numbered from 1, like the groups of `_PLAIN`
        indices = np.concatenate([np.arange(start, start + block.count(b"\n")) for start, block in blocks])
        without_last_comma = joined.translate(_NUMBERS_ONLY, _DELETED)[:-1]
        numbers = json.loads(b"[" + without_last_comma + b"]")
        for start, name in enumerate(names):
            columns[name][indices] = _checked(numbers[start :: len(names)], name)
    return others


def _blocks(text: bytes) -> dict[Any, list[tuple[int, bytes]]]:
    """
    Divide *text* into blocks, and group them by the number of their layout.

    A block consists of consecutive plain lines of one layout, or of one other line, which has None instead of a layout. It is
    returned as the index of its first line and its text.
    """
    blocks: dict[Any, list[tuple[int, bytes]]] = {}
    index = position = 0
    while position < len(text):
        match = _PLAIN.match(text, position)
        end = match.end() if match else text.index(b"\n", position) + 1
        blocks.setdefault(match.lastindex if match else None, []).append((index, text[position:end]))
        index += text.count(b"\n", position, end)
        position = end
    return blocks


def _checked(values: list[Any], name: str) -> np.ndarray:
    """Return *values* of the column *name* as an array. Raise a ValueError if the column cannot hold one of them."""
    numbers = np.array(values)
    is_float = COLUMNS[name] is np.float64
    if numbers.dtype.kind not in ("if" if is_float else "i") or not np.isfinite(numbers).all():
        expected = "a finite float64 or an int64" if is_float else "an int64"
        raise ValueError(f"each {name} must be {expected}, got {excerpt(values)}")
    return numbers


def _entries(lines: list[bytes]) -> list[dict[str, Any]]:
    """Return the objects of several lines, which are parsed at once."""
    text = b",".join(lines)
    entries: list[dict[str, Any]] = json.loads(b"[" + text + b"]", parse_constant=reject_constant)
    if len(entries) != len(lines) or not set(map(type, entries)) <= {dict}:
        raise ValueError("each line must be a JSON object")
    diagnoses = [entry["diagnosis"] for entry in entries if "diagnosis" in entry]
    members = sum(map(len, entries)) + sum(len(diagnosis) + len(diagnosis["evidence"]) for diagnosis in diagnoses)
    if text.count(b'":') != members:  # a duplicate key, a space before a colon, or a text that contains '":'
        return [check_line(line) for line in lines]
    return entries


def _record(entry: dict[str, Any]) -> StepRecord:
    """Return the record without its tensors and histograms, which become a `Measurement`. Empty ones stay in the record."""
    omitted = {"diagnosis"} | {name for name in ("tensors", "histograms") if entry.get(name)}
    return from_json({name: value for name, value in entry.items() if name not in omitted})


def _measurement(position: int, record: StepRecord, entry: dict[str, Any]) -> Measurement:
    """Return the measurement of a step, given its index and record, and its JSON object *entry*."""
    scale = 1.0 if record.measured_scale is None else record.measured_scale
    statistics = _statistics(entry["tensors"]) if entry.get("tensors") else None
    histograms = _histograms(entry["histograms"]) if entry.get("histograms") else None
    return Measurement(position, scale, statistics, histograms)


def _statistics(rows: list[Any]) -> np.ndarray:
    if other_lengths := set(map(len, rows)) - {8}:
        raise ValueError(f"each tensor must have eight statistics, got {min(other_lengths)}")
    return _integers(chain.from_iterable(rows)).reshape(len(rows), 8)


def _histograms(entries: list[Any]) -> Histograms:
    lowest, bins = zip(*entries, strict=True)
    lengths = np.array(list(map(len, bins)), np.int64)
    counts = _integers(chain.from_iterable(bins))
    if (counts < 0).any():
        raise ValueError(f"the counts of a histogram must not be negative, got {counts.min()}")
    return Histograms(_integers(lowest), lengths, counts)


def _integers(values: Iterable[Any]) -> np.ndarray:
    integers = list(values)
    if not set(map(type, integers)) <= {int}:
        invalid = next(value for value in integers if type(value) is not int)
        raise TypeError(f"expected only integers, got {excerpt(invalid)}")
    return np.array(integers, np.int64)


def _diagnosis(entry: dict[str, Any]) -> Diagnosis:
    diagnosis = entry["diagnosis"]
    if not isinstance(diagnosis, dict) or not {"verdict", "message", "evidence"} <= set(diagnosis):
        raise ValueError(f"a diagnosis must have verdict, message and evidence, got {excerpt(diagnosis)}")
    message = diagnosis["message"]
    evidence = diagnosis["evidence"]
    stall = diagnosis.get("stall")
    if not (isinstance(message, str) and isinstance(evidence, dict) and isinstance(stall, str | None)):
        expected = "a str as message, an object as evidence, and a str or null as stall"
        raise ValueError(f"a diagnosis must have {expected}, got {excerpt(diagnosis)}")
    return Diagnosis(entry["step"], Verdict(diagnosis["verdict"]), message, evidence, stall)
