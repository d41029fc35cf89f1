r"""
Run files: the records of a run as lines of JSON, in UTF-8.

The first line is a header, ``{"format": "ampscale-run", "version": 1, "rule": ..., "names": ...}``, with the rule of the scaler and
the names of the gradients, or null. Each further line is `records.to_json` of a step, optionally with a member "diagnosis". A line
without a line feed at the end of the file is ignored, since it is still being written.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..core.rule import LossScaleRule
from ..files import check_regular
from ..parsing import LONGEST_JSON, LONGEST_RUN, MOST_ENTRIES, MOST_STEPS, cut, excerpt, parse_json
from .records import Histogram, StepRecord, from_json, statistics_of, to_json
from .verdicts import Diagnosis, Verdict

FORMAT, VERSION = "ampscale-run", 1
_CHUNK = 2**18  # bytes; larger chunks are slower, as their objects leave the caches of the processor
_NUMBERS = ("scale", "next_scale", "loss", "norm")
_PLAIN = {"step", "finite", "applied", *_NUMBERS}  # members of most lines
_SYMBOLS: dict[Any, float] = {None: math.nan, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Histograms(NamedTuple):
    """
    Histograms of all gradients in one step.

    Args:
        lowest: Exponent of the first bin of each gradient: int64.
        lengths: Number of bins of each gradient: int64.
        counts: Bins of all gradients, one gradient after the other: int64.
    """

    lowest: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray

    def bins(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the index of the gradient and the exponent of each bin in `counts`."""
        gradients = np.repeat(np.arange(self.lengths.size), self.lengths)
        first = np.cumsum(self.lengths) - self.lengths
        return gradients, np.arange(self.counts.size) - first[gradients] + self.lowest[gradients]

    def tuples(self) -> tuple[Histogram, ...]:
        """Return one `Histogram` for each gradient."""
        parts = np.split(self.counts, np.cumsum(self.lengths)[:-1]) if self.lengths.size else []
        return tuple(Histogram(int(low), tuple(part.tolist())) for low, part in zip(self.lowest, parts, strict=True))


class Measurement(NamedTuple):
    """
    Statistics and histograms of one step.

    Args:
        index: Index of the step in the columns of the `Run`.
        scale: Factor by which the measured gradients were scaled.
        statistics: One row for each gradient, with the columns of `TensorStatistics`: int64; None if they were not measured.
        histograms: None if they were not measured.
    """

    index: int
    scale: float
    statistics: np.ndarray | None
    histograms: Histograms | None

    @property
    def gradients(self) -> int:
        """Return the number of measured gradients."""
        return len(self.statistics) if self.statistics is not None else len(self.histograms.lowest) if self.histograms else 0


@dataclass(frozen=True, eq=False)
class Run:
    """
    Content of a run file. The columns are arrays of shape (number of steps,).

    Args:
        rule: Constants of the scaler; None if they are unknown.
        names: Names of the gradients; None if they are unknown.
        steps: Numbers of the steps: int64.
        scales: Loss scale of each step: float64.
        next_scales: Loss scale of the step after each: float64.
        finite: True if all gradients of the step were finite: bool.
        applied: True if the parameters were updated: bool.
        losses: Unscaled losses: float64; NaN also if unknown.
        norms: Global norms of the unscaled gradients: float64; NaN also if unknown.
        measurements: Statistics and histograms, in the order of the steps.
        diagnoses: Diagnoses, in the order of the steps.
    """

    rule: LossScaleRule | None
    names: tuple[str, ...] | None
    steps: np.ndarray
    scales: np.ndarray
    next_scales: np.ndarray
    finite: np.ndarray
    applied: np.ndarray
    losses: np.ndarray
    norms: np.ndarray
    measurements: tuple[Measurement, ...]
    diagnoses: tuple[Diagnosis, ...]

    def records(self) -> Iterator[StepRecord]:
        """Yield a record of each step, without the members that concern ranks and the order of calls."""
        measured = {measurement.index: measurement for measurement in self.measurements}
        columns = (self.steps, self.scales, self.next_scales, self.finite, self.applied, self.losses, self.norms)
        for index, (*required, loss, norm) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            optional = {name: value for name, value in (("loss", loss), ("norm", norm)) if not math.isnan(value)}
            yield StepRecord(*required, **optional, **_measured(measured.get(index)))


def header_line(rule: LossScaleRule | None, names: Iterable[str] | None) -> str:
    """
    Return the first line of a run file, with a line feed.

    >>> header_line(None, ["w", "b"])
    '{"format":"ampscale-run","version":1,"rule":null,"names":["w","b"]}\n'
    """
    constants = None if rule is None else json.loads(rule.to_json())
    return _line({"format": FORMAT, "version": VERSION, "rule": constants, "names": None if names is None else list(names)})


def step_line(record: StepRecord, diagnosis: Diagnosis | None = None) -> str:
    """
    Return the line of one step, with a line feed.

    >>> step_line(StepRecord(7, 1024.0, 1024.0, finite=True, applied=True, norm=0.5))
    '{"step":7,"scale":1024.0,"next_scale":1024.0,"finite":true,"applied":true,"norm":0.5}\n'
    """
    members = to_json(record)
    if diagnosis is not None:
        evidence = {name: _encoded(value) for name, value in diagnosis.evidence.items()}
        members["diagnosis"] = {"verdict": str(diagnosis.verdict), "message": diagnosis.message, "evidence": evidence}
        if diagnosis.stall is not None:
            members["diagnosis"]["stall"] = diagnosis.stall
    return _line(members)


def read_run(path: str | os.PathLike[str], progress: Callable[[float], None] | None = None) -> Run:
    """
    Read a run file, which may still be written.

    Args:
        path: The file.
        progress: Called with the share of the file that has been read.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has no header yet, or a line is not valid. The message has its number, counted from 1.
    """
    check_regular(path, LONGEST_RUN)
    reader, size = RunReader(), max(1, os.stat(path).st_size)
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            reader.feed(data)
            if progress is not None:
                progress(min(1.0, reader.bytes / size))
    return reader.run()


class RunReader:
    """
    Incremental reader of a run file that another process writes.

    >>> reader = RunReader()
    >>> reader.feed(header_line(None, None).encode() + b'{"step":0,"scale":2.0,"next_scale":2.0,"finite":true,"app')
    >>> reader.run().steps.size
    0
    >>> reader.feed(b'lied":true}\n')
    >>> reader.run().scales
    array([2.])
    """

    def __init__(self) -> None:
        self.bytes = 0  # number of bytes that were fed
        self._rest = b""  # unfinished line
        self._lines = 0
        self._steps = 0
        self._header: tuple[LossScaleRule | None, tuple[str, ...] | None] | None = None
        self._columns: list[tuple[np.ndarray, ...]] = []
        self._measurements: list[Measurement] = []
        self._diagnoses: list[Diagnosis] = []

    @property
    def has_header(self) -> bool:
        """Return True if the first line is complete."""
        return self._header is not None

    def feed(self, data: bytes) -> None:
        """
        Process the next bytes of the file.

        Raises:
            ValueError: A line is not valid, or the file exceeds a limit. The reader must not be used any more.
        """
        self.bytes += len(data)
        if self.bytes > LONGEST_RUN:
            raise ValueError(f"a run file must have at most {LONGEST_RUN} bytes, got more")
        complete, line_feed, rest = data.rpartition(b"\n")
        if not line_feed:
            self._rest += data
        else:
            complete, self._rest = self._rest + complete, rest
        if len(self._rest) > LONGEST_JSON:
            raise ValueError(f"line {self._lines + 1} must have at most {LONGEST_JSON} bytes, got more")
        if not line_feed:
            return
        if self._header is None:
            first, _, complete = (complete + b"\n").partition(b"\n")
            self._header, self._lines = _header(first), 1
            complete = complete[:-1]
            if not complete:
                return
        self._add(complete)

    def run(self) -> Run:
        """
        Return all complete steps.

        Raises:
            ValueError: The header is not complete yet.
        """
        if self._header is None:
            raise ValueError(f'a run file must start with a header line, {{"format": "{FORMAT}", ...}}, got no complete line')
        if len(self._columns) != 1:
            parts = zip(*(self._columns or [_columns([])]), strict=True)
            self._columns = [tuple(np.concatenate(part) for part in parts)]
        return Run(*self._header, *self._columns[0], tuple(self._measurements), tuple(self._diagnoses))

    def _add(self, text: bytes) -> None:
        """Add lines of steps, which are separated by line feeds."""
        lines = text.count(b"\n") + 1
        if self._steps + lines > MOST_STEPS:
            raise ValueError(f"a run file must have at most {MOST_STEPS} steps, got more")
        try:
            entries = _entries(text, lines)
            columns = _columns(entries)
            special = [index for index, entry in enumerate(entries) if not _PLAIN.issuperset(entry)]
            measured = [_measurement(self._steps + index, entries[index]) for index in special if "measured_scale" in entries[index]]
            diagnoses = [_diagnosis(entries[index]) for index in special if "diagnosis" in entries[index]]
            for index in special:
                _check_special(entries[index])
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            self._raise(text, error)
        self._columns.append(columns)
        self._measurements += [measurement for measurement in measured if measurement.gradients]
        self._diagnoses += diagnoses
        self._lines += lines
        self._steps += lines

    def _raise(self, text: bytes, error: Exception) -> None:
        """Raise a ValueError with the number of the first line that is not valid."""
        for number, line in enumerate(text.split(b"\n"), start=self._lines + 1):
            try:
                _check_line(line)
            except ValueError as line_error:
                raise ValueError(f"line {number}: {line_error}") from None
        raise ValueError(f"lines {self._lines + 1} to {number}: {error}") from None


def _line(members: dict[str, Any]) -> str:
    return json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _encoded(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _measured(measurement: Measurement | None) -> dict[str, Any]:
    """Return the fields of a `StepRecord` that hold *measurement*."""
    if measurement is None:
        return {}
    statistics, histograms = measurement.statistics, measurement.histograms
    tensors = None if statistics is None else statistics_of(statistics.tolist())
    return {
        "measured_scale": measurement.scale,
        "tensors": tensors,
        "histograms": None if histograms is None else histograms.tuples(),
    }


def _header(line: bytes) -> tuple[LossScaleRule | None, tuple[str, ...] | None]:
    try:
        header = parse_json(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        text = cut(line[:1000].decode(errors="replace"))
        raise ValueError(f'line 1 must be the header of a run file, {{"format": "{FORMAT}", ...}}, got {text}')
    if header.get("version") != VERSION:
        raise ValueError(f"line 1: the version of the run file must be {VERSION}, got {excerpt(header.get('version'))}")
    rule, names = header.get("rule"), header.get("names")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"line 1: names must be a list of strings or null, got {excerpt(names)}")
    if len(names or ()) > MOST_ENTRIES:
        raise ValueError(f"line 1: there must be at most {MOST_ENTRIES} names, got {len(names)}")
    try:
        constants = None if rule is None else LossScaleRule.from_json(json.dumps(rule))
    except (TypeError, ValueError) as error:
        raise ValueError(f"line 1: {error}") from None
    return constants, None if names is None else tuple(names)


def _entries(text: bytes, lines: int) -> list[dict[str, Any]]:
    """Return the objects of several lines, which are parsed at once. A ValueError only says that one of the lines is not valid."""
    if text.count(b"}\n{") != lines - 1:
        raise ValueError("each line must be a JSON object")
    entries = json.loads(b"[" + text.replace(b"\n", b",") + b"]", parse_constant=_reject)
    if len(entries) != lines or not set(map(type, entries)) <= {dict}:
        raise ValueError("each line must be a JSON object")
    members = sum(map(len, entries)) + sum(map(_nested, [entry["diagnosis"] for entry in entries if "diagnosis" in entry]))
    if text.count(b'":') != members:  # a duplicate key, a space before a colon, or a text with these characters
        return [_check_line(line) for line in text.split(b"\n")]
    return entries


def _nested(diagnosis: dict[str, Any]) -> int:
    return len(diagnosis) + len(diagnosis["evidence"])


def _reject(constant: str) -> Any:
    raise ValueError(f"each number must be finite, got {constant}")


def _check_line(line: bytes) -> dict[str, Any]:
    """Return the object of one line, after it was parsed and checked in whole."""
    entry = parse_json(line)
    if not isinstance(entry, dict):
        raise ValueError(f"a step must be a JSON object, got {excerpt(entry)}")
    from_json({name: value for name, value in entry.items() if name != "diagnosis"})
    if "diagnosis" in entry:
        _diagnosis(entry)
    return entry


def _columns(entries: list[dict[str, Any]]) -> tuple[np.ndarray, ...]:
    """Return the columns of a `Run` for some steps."""
    steps = _typed([entry["step"] for entry in entries], int, np.int64)
    scales, next_scales = (_numbers([entry[name] for entry in entries], {None}) for name in ("scale", "next_scale"))
    finite, applied = (_typed([entry[name] for entry in entries], bool, np.bool_) for name in ("finite", "applied"))
    losses, norms = (_numbers([entry.get(name) for entry in entries], set()) for name in ("loss", "norm"))
    return steps, scales, next_scales, finite, applied, losses, norms


def _typed(values: list[Any], expected: type, dtype: type) -> np.ndarray:
    if not set(map(type, values)) <= {expected}:
        raise TypeError(f"expected only values of type {expected.__name__}")
    return np.array(values, dtype)


def _numbers(values: list[Any], rejected: set[Any]) -> np.ndarray:
    """Return numbers as float64. None, which is NaN, and the texts of `_SYMBOLS` are replaced, unless *rejected*."""
    types = set(map(type, values))
    if not types <= {float, int, str, type(None)}:
        raise TypeError("expected only numbers")
    if not types <= {float, int}:
        symbols = {value for value in values if value is None or isinstance(value, str)}
        if not symbols <= _SYMBOLS.keys() - rejected:
            raise ValueError("expected only numbers")
        return np.array([_SYMBOLS[value] if value in symbols else value for value in values], np.float64)
    numbers = np.array(values, np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("each number must be in the range of float64")
    return numbers


def _measurement(index: int, entry: dict[str, Any]) -> Measurement:
    rows, histograms = entry.get("tensors"), entry.get("histograms")
    (scale,) = _numbers([entry["measured_scale"]], {None})
    statistics = None if rows is None else _integers(chain.from_iterable(rows)).reshape(len(rows), 8)
    if rows is not None and not set(map(len, rows)) <= {8}:
        raise ValueError("each tensor must have eight statistics")
    if histograms is None:
        return Measurement(index, float(scale), statistics, None)
    lowest, counts = zip(*histograms, strict=True) if histograms else ((), ())
    lengths = np.array(list(map(len, counts)), np.int64)
    return Measurement(
        index, float(scale), statistics, Histograms(_integers(lowest), lengths, _integers(chain.from_iterable(counts)))
    )


def _integers(values: Iterable[Any]) -> np.ndarray:
    return _typed(list(values), int, np.int64)


def _diagnosis(entry: dict[str, Any]) -> Diagnosis:
    diagnosis = entry["diagnosis"]
    if not isinstance(diagnosis, dict) or not {"verdict", "message", "evidence"} <= set(diagnosis):
        raise ValueError(f"a diagnosis must have verdict, message and evidence, got {excerpt(diagnosis)}")
    message, evidence, stall = diagnosis["message"], diagnosis["evidence"], diagnosis.get("stall")
    if not (isinstance(message, str) and isinstance(evidence, dict) and isinstance(stall, str | None)):
        raise ValueError(f"a diagnosis must have a message and an object as evidence, got {excerpt(diagnosis)}")
    return Diagnosis(entry["step"], Verdict(diagnosis["verdict"]), message, evidence, stall)


def _check_special(entry: dict[str, Any]) -> None:
    """Check the members that are not columns, except the statistics, which were checked in whole arrays."""
    plain = {name: value for name, value in entry.items() if name not in ("tensors", "histograms", "diagnosis")}
    from_json(plain)
