"""
Run files: the records of a run as lines of JSON, in UTF-8.

The first line is a header, ``{"format": "ampscale-run", "version": 1, "rule": ..., "names": ...}``, with the rule of the scaler
and the names of the gradients, or null. Each further line is `records.to_json` of a step, optionally with a member "diagnosis". A
last line without a line feed is ignored, since it is still being written.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ..core.rule import LossScaleRule
from ..files import check_before_opening
from ..parsing import LONGEST_JSON, LONGEST_RUN, MOST_ENTRIES, MOST_STEPS, cut, excerpt, parse_json
from .records import StepRecord, encoded, to_json
from .run_lines import COLUMNS, Measurement, check_line, empty_columns, parse_lines
from .verdicts import Diagnosis

FORMAT, VERSION = "ampscale-run", 1
_CHUNK = 2**18  # bytes; larger chunks are slower, since their objects do not fit into the processor's caches
_LINE_ERRORS = (ValueError, TypeError, LookupError, OverflowError, RecursionError)  # errors of `parse_lines`


@dataclass(frozen=True, eq=False)
class Run:
    """
    Content of a run file. The columns are arrays of shape (number of steps,).

    Args:
        rule: Constants of the scaler; None if they are unknown.
        names: Names of the gradients; None if they are unknown.
        steps: Numbers of the steps: int64.
        scales: Loss scale of each step: float64.
        next_scales: Loss scale after each step: float64.
        finite: True if all gradients of the step were finite: bool.
        applied: True if the parameters were updated: bool.
        losses: Unscaled losses: float64; NaN also if unknown.
        norms: Global norms of the unscaled gradients: float64; NaN also if unknown.
        measurements: Statistics and histograms, in the order of the steps.
        diagnoses: Diagnoses, in the order of the steps.
        others: Records without measurements, by the index of the step. They include all skipped steps, and all steps with
            members that are not columns.
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
    others: dict[int, StepRecord]

    def records(self) -> Iterator[StepRecord]:
        """Yield the record of each step, as it was written."""
        measured = {measurement.position: measurement for measurement in self.measurements}
        columns = (self.steps, self.scales, self.next_scales, self.finite, self.applied, self.losses, self.norms)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for index, (*required, loss, norm) in enumerate(rows):
            loss_and_norm = (None if math.isnan(value) else value for value in (loss, norm))
            record = self.others.get(index) or StepRecord(*required, *loss_and_norm)
            yield replace(record, **measured[index].members()) if index in measured else record


def header_line(rule: LossScaleRule | None, names: Iterable[str] | None) -> str:
    r"""
    Return the first line of a run file, with a line feed.

    >>> header_line(None, ["w", "b"])
    '{"format":"ampscale-run","version":1,"rule":null,"names":["w","b"]}\n'
    """
    constants = None if rule is None else asdict(rule)
    return _line({"format": FORMAT, "version": VERSION, "rule": constants, "names": None if names is None else list(names)})


def step_line(record: StepRecord, diagnosis: Diagnosis | None = None) -> str:
    r"""
    Return the line of one step, with a line feed.

    >>> step_line(StepRecord(7, 1024.0, 1024.0, finite=True, applied=True, norm=0.5))
    '{"step":7,"scale":1024.0,"next_scale":1024.0,"finite":true,"applied":true,"norm":0.5}\n'
    """
    members = to_json(record)
    if diagnosis is not None:
        evidence = {name: encoded(value) for name, value in diagnosis.evidence.items()}
        members["diagnosis"] = {"verdict": str(diagnosis.verdict), "message": diagnosis.message, "evidence": evidence}
        if diagnosis.stall is not None:
            members["diagnosis"]["stall"] = diagnosis.stall
    return _line(members)


def read_run(path: str | os.PathLike[str], progress: Callable[[float], None] | None = None) -> Run:
    """
    Read a run file. Another process may still be writing it.

    Args:
        path: The file.
        progress: Called with the share of the file that has been read.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has no header yet, or a line is not valid. The message contains the line number, counted from 1.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w+") as file:
    ...     _ = file.write(header_line(None, ["w"]) + step_line(StepRecord(0, 1024.0, 1024.0, finite=True, applied=True)))
    ...     file.flush()
    ...     read_run(file.name).scales
    array([1024.])
    """
    reader = RunReader()
    reader.read(path, progress)
    return reader.run()


class RunReader:
    r"""
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
        self.header: tuple[LossScaleRule | None, tuple[str, ...] | None] | None = None  # rule and names; None before line 1 ends
        self._unfinished = b""  # beginning of the last line, whose line feed has not been read yet
        self._steps = 0
        self._columns: list[dict[str, np.ndarray]] = []
        self._measurements: list[Measurement] = []
        self._diagnoses: list[Diagnosis] = []
        self._others: dict[int, StepRecord] = {}

    def read(self, path: str | os.PathLike[str], progress: Callable[[float], None] | None = None) -> None:
        """Process the bytes that were added to a file, and report the processed share to *progress*; see `read_run`."""
        check_before_opening(path, LONGEST_RUN)
        size = max(1, os.stat(path).st_size)
        with open(path, "rb") as file:
            if self.bytes:  # a pipe has no positions
                file.seek(self.bytes)
            while data := file.read(_CHUNK):
                self.feed(data)
                if progress is not None:
                    progress(min(1.0, self.bytes / size))

    def feed(self, data: bytes) -> None:
        """
        Process the next bytes of the file.

        Raises:
            ValueError: A line is not valid, or the file exceeds a limit. The reader must not be used after this error.
        """
        self.bytes += len(data)
        if self.bytes > LONGEST_RUN:
            raise ValueError(f"a run file must have at most {LONGEST_RUN} bytes, got more")
        end = data.rfind(b"\n") + 1
        if end:
            complete = self._unfinished + data[:end]
            self._unfinished = data[end:]
        else:
            complete = b""
            self._unfinished += data
        if len(self._unfinished) > LONGEST_JSON:
            lines = 0 if self.header is None else self._steps + 1
            raise ValueError(f"a line must have at most {LONGEST_JSON} bytes, got more after line {lines}")
        if complete and self.header is None:
            line, _, complete = complete.partition(b"\n")
            self.header = _header(line)
        if complete:
            self._add(complete.replace(b"\r\n", b"\n") if b"\r" in complete else complete)

    def run(self) -> Run:
        """
        Return the run with all steps whose lines are complete.

        Raises:
            ValueError: The header is not complete yet.
        """
        if self.header is None:
            raise ValueError(f'a run file must start with a header line, {{"format": "{FORMAT}", ...}}, got no complete line')
        if len(self._columns) != 1:
            chunks = self._columns or [empty_columns(0)]
            self._columns = [{name: np.concatenate([chunk[name] for chunk in chunks]) for name in COLUMNS}]
        rule, names = self.header
        contents: list[Any] = [*self._columns[0].values(), tuple(self._measurements), tuple(self._diagnoses), self._others]
        return Run(rule, names, *contents)

    def _add(self, text: bytes) -> None:
        """Add lines of steps, each with a line feed."""
        steps = text.count(b"\n")
        if self._steps + steps > MOST_STEPS:
            raise ValueError(f"a run file must have at most {MOST_STEPS} steps, got more")
        try:
            columns, others, measurements, diagnoses = parse_lines(text, self._steps)
        except _LINE_ERRORS as error:
            self._raise_for_line(text, error)
        self._columns.append(columns)
        self._measurements += measurements
        self._diagnoses += diagnoses
        self._others |= others
        self._steps += steps

    def _raise_for_line(self, text: bytes, error: Exception) -> NoReturn:
        """Raise a ValueError with the number of the first line that is not valid."""
        for number, line in enumerate(text.split(b"\n")[:-1], start=self._steps + 2):  # line 1 is the header
            try:
                check_line(line)
                parse_lines(line + b"\n", 0)
            except _LINE_ERRORS as line_error:
                raise ValueError(f"line {number}: {_reason(line_error)}") from None
        raise ValueError(f"lines {self._steps + 2} to {number}: {error}") from None  # each line is valid by itself


def _reason(error: Exception) -> str:
    """Return the message of an error in one line, without a line number."""
    if isinstance(error, OverflowError):
        return "each integer must be in the range of int64"
    return f"{error.msg}: column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _line(members: dict[str, Any]) -> str:
    return json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _header(line: bytes) -> tuple[LossScaleRule | None, tuple[str, ...] | None]:
    """Return the rule and the names in the first line of a run file."""
    try:
        header = parse_json(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        text = cut(line[:1000].decode(errors="replace"), 40)
        raise ValueError(f'line 1 must be the header of a run file, {{"format": "{FORMAT}", ...}}, got {text}')
    if header.get("version") != VERSION:
        raise ValueError(f"line 1: the version of the run file must be {VERSION}, got {excerpt(header.get('version'))}")
    constants, names = header.get("rule"), header.get("names")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"line 1: names must be a list of strings or null, got {excerpt(names)}")
    if names is not None and len(names) > MOST_ENTRIES:
        raise ValueError(f"line 1: there must be at most {MOST_ENTRIES} names, got {len(names)}")
    try:
        rule = None if constants is None else LossScaleRule.from_json(json.dumps(constants))
    except (TypeError, ValueError) as error:
        raise ValueError(f"line 1: {error}") from None
    return rule, None if names is None else tuple(names)
