"""Parser of the lines of a run file that hold steps. Many lines are parsed at once, since a run can have millions of them."""

import json
import math
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..parsing import excerpt, parse_json
from .records import Histogram, from_json
from .verdicts import Diagnosis, Verdict

# Columns of a `Run`, in its order, and the members of most lines.
COLUMNS: dict[str, Any] = {
    "step": np.int64, "scale": np.float64, "next_scale": np.float64, "finite": np.bool_, "applied": np.bool_,
    "loss": np.float64, "norm": np.float64,
}  # fmt: skip
_OPTIONAL = ("loss", "norm")
_SYMBOLS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_DIGITS = b"0123456789.-"
# All but the digits and commas of a plain line becomes spaces, and "true", which alone has a "u", becomes 1.
_NUMBERS_ONLY = bytes.maketrans(b'{}":_abcdefghijklmnopqrstuvwxyz', b" " * 25 + b"1" + b" " * 5)


def _shape(names: Iterable[str]) -> bytes:
    """Return the line of an applied step with these members, without digits."""
    return ("{" + ",".join(f'"{name}":{"true" if COLUMNS[name] is np.bool_ else ""}' for name in names) + "}").encode()


_SHAPES = {
    _shape(names): names
    for names in ([name for name in COLUMNS if name not in left_out] for left_out in ((), ("loss",), ("norm",), _OPTIONAL))
}


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
        position: Index of the step in the columns of the `Run`.
        scale: Factor by which the measured gradients were scaled; 1.0 if it is unknown.
        statistics: One row for each gradient, with the columns of `TensorStatistics`: int64; None if they were not measured.
        histograms: None if they were not measured.
    """

    position: int
    scale: float
    statistics: np.ndarray | None
    histograms: Histograms | None

    @property
    def gradients(self) -> int:
        """Return the number of measured gradients."""
        return len(self.statistics) if self.statistics is not None else len(self.histograms.lowest) if self.histograms else 0


def parse_lines(lines: list[bytes], first: int) -> tuple[dict[str, np.ndarray], list[Measurement], list[Diagnosis]]:
    """
    Return the columns, the measurements and the diagnoses of some steps.

    Args:
        lines: One line for each step.
        first: Index of the first of them in the run.

    Raises:
        Exception: A ValueError, TypeError, LookupError, OverflowError or RecursionError only says that a line is not valid;
            `check_line` has the message.
    """
    columns = empty_columns(len(lines))
    others = _fill_plain(columns, lines)
    entries = _entries([lines[index] for index in others]) if others else []
    _fill(columns, others, entries)
    special = [pair for pair in zip(others, entries, strict=True) if not COLUMNS.keys() >= pair[1].keys()]
    for _, entry in special:
        from_json({name: value for name, value in entry.items() if name not in ("tensors", "histograms", "diagnosis")})
    measurements = [_measurement(first + index, entry) for index, entry in special]
    diagnoses = [_diagnosis(entry) for _, entry in special if "diagnosis" in entry]
    return columns, [measurement for measurement in measurements if measurement.gradients], diagnoses


def empty_columns(steps: int) -> dict[str, np.ndarray]:
    """Return columns for this number of steps, in which optional numbers are NaN."""
    return {name: np.full(steps, math.nan if name in _OPTIONAL else 0, dtype) for name, dtype in COLUMNS.items()}


def check_line(line: bytes) -> dict[str, Any]:
    """Return the object of one line. Raise a ValueError with the reason if it is not valid."""
    entry = parse_json(line)
    if not isinstance(entry, dict):
        raise ValueError(f"a step must be a JSON object, got {excerpt(entry)}")
    from_json({name: value for name, value in entry.items() if name != "diagnosis"})
    if "diagnosis" in entry:
        _diagnosis(entry)
    return entry


def _fill_plain(columns: dict[str, np.ndarray], lines: list[bytes]) -> list[int]:
    """
    Parse the lines that have the shape of an applied step without measurement, and return the indices of the others.

    Without its digits, such a line is one of `_SHAPES`. Its numbers are parsed as parts of one long list, which takes half of the
    time that objects take.
    """
    shapes = [line.translate(None, _DIGITS) for line in lines]
    for shape in set(shapes) & _SHAPES.keys():
        indices = [index for index, other in enumerate(shapes) if other == shape]
        text, names = b",".join([lines[index] for index in indices]), _SHAPES[shape]
        numbers = json.loads(b"[" + text.translate(_NUMBERS_ONLY) + b"]")
        for start, name in enumerate(names):
            columns[name][indices] = _finite(numbers[start :: len(names)], is_integer=name == "step")
    return [index for index, shape in enumerate(shapes) if shape not in _SHAPES]


def _finite(values: list[Any], is_integer: bool) -> np.ndarray:
    numbers = np.array(values)
    if numbers.dtype.kind not in ("i" if is_integer else "if") or not np.isfinite(numbers).all():
        raise ValueError("each number must be in the range of its dtype")
    return numbers


def _fill(columns: dict[str, np.ndarray], indices: list[int], entries: list[dict[str, Any]]) -> None:
    """Write the members of *entries* to *columns*."""
    for name, dtype in COLUMNS.items():
        values = [entry.get(name, "nan") for entry in entries] if name in _OPTIONAL else [entry[name] for entry in entries]
        if dtype is np.float64:
            columns[name][indices] = _numbers(values)
        else:
            columns[name][indices] = _typed(values, int if dtype is np.int64 else bool, dtype)


def _entries(lines: list[bytes]) -> list[dict[str, Any]]:
    """Return the objects of several lines, which are parsed at once."""
    text = b",".join(lines)
    entries: list[dict[str, Any]] = json.loads(b"[" + text + b"]", parse_constant=_reject)
    if len(entries) != len(lines) or not set(map(type, entries)) <= {dict}:
        raise ValueError("each line must be a JSON object")
    members = sum(map(len, entries)) + sum(map(_nested, [entry["diagnosis"] for entry in entries if "diagnosis" in entry]))
    if text.count(b'":') != members:  # a duplicate key, a space before a colon, or a text with these characters
        return [check_line(line) for line in lines]
    return entries


def _nested(diagnosis: dict[str, Any]) -> int:
    return len(diagnosis) + len(diagnosis["evidence"])


def _reject(constant: str) -> Any:
    raise ValueError(f"each number must be finite, got {constant}")


def _typed(values: list[Any], expected: type, dtype: Any) -> np.ndarray:
    if not set(map(type, values)) <= {expected}:
        raise TypeError(f"expected only values of type {expected.__name__}")
    return np.array(values, dtype)


def _numbers(values: list[Any]) -> np.ndarray:
    """Return numbers and the texts of `_SYMBOLS` as float64."""
    if not set(map(type, values)) <= {float, int, str}:
        raise TypeError("expected only numbers")
    numbers = np.array([_SYMBOLS[value] if isinstance(value, str) else value for value in values], np.float64)
    if np.count_nonzero(np.isfinite(numbers)) + sum(isinstance(value, str) for value in values) != numbers.size:
        raise ValueError("each number must be in the range of float64")
    return numbers


def _measurement(position: int, entry: dict[str, Any]) -> Measurement:
    rows, histograms = entry.get("tensors"), entry.get("histograms")
    (scale,) = _numbers([entry.get("measured_scale", 1.0)])
    statistics = None if rows is None else _integers(chain.from_iterable(rows)).reshape(len(rows), 8)
    if rows is not None and not set(map(len, rows)) <= {8}:
        raise ValueError("each tensor must have eight statistics")
    if histograms is None:
        return Measurement(position, float(scale), statistics, None)
    lowest, counts = zip(*histograms, strict=True) if histograms else ((), ())
    lengths = np.array(list(map(len, counts)), np.int64)
    return Measurement(
        position, float(scale), statistics, Histograms(_integers(lowest), lengths, _integers(chain.from_iterable(counts)))
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
