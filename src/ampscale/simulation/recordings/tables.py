"""Readers of CSV files with a row for each step: overflow traces, and observed scales."""

import csv
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np

from ...files import check_before_opening
from ...parsing import LONGEST_LOG, LONGEST_ROW, MOST_STEPS, excerpt
from ..traces import Observed, Trace, from_flags

# Name of a column of flags (in lower case), and the meaning of a true flag.
FLAG_COLUMNS = {"finite": "finite", "overflow": "overflow", "found_inf": "overflow", "skipped": "overflow"}
# Flag of a cell, by its text in lower case.
FLAGS = dict.fromkeys(("1", "1.0", "true", "yes"), True) | dict.fromkeys(("0", "0.0", "false", "no"), False)


def from_csv(path: str | Path, column: str | None = None, means: str | None = None) -> Trace:
    r"""
    Read an overflow trace from a column of a CSV file with a row for each step.

    Args:
        path: CSV file in UTF-8, with commas between the cells. The first row names the columns.
        column: Name of the column. By default, the only column called `finite`, `overflow`, `found_inf` or `skipped`, in upper
            or lower case. True cells are 1, 1.0, true or yes, and false cells are 0, 0.0, false or no, in upper or lower case.
        means: Meaning of a true cell: "finite" or "overflow". Required if the column has another name.

    Raises:
        ValueError: No column or several columns have this name; the meaning of a true cell is unknown; a cell has another
            value; or there is a column `step` whose numbers do not increase by one.
        OSError: The file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.csv")
    ...     _ = path.write_text("step,found_inf\n0,0\n1,1\n")
    ...     print(from_csv(path).limits)
    [ inf -inf]
    """
    with read_table(path) as (header, rows):
        column = _flag_column(path, header, "column") if column is None else column
        index = _index(path, header, column, "column")
        true_is_finite = _meaning(column, means) == "finite"
        return from_flags(_flag(path, line, column, cells[index]) == true_is_finite for line, cells in rows)


def observed_from_csv(path: str | Path, scale_column: str = "scale", overflow_column: str | None = None) -> Observed:
    r"""
    Read the scales, and the flags if there are any, from a CSV file with a row for each step.

    If the last row has no flag, its scale is the scale after the last step; otherwise the scale after the last step is unknown.

    Args:
        path: CSV file in UTF-8, with commas between the cells. The first row names the columns.
        scale_column: Name of the column of scales. An empty cell is an unknown scale.
        overflow_column: Name of the column of flags, with cells as in `from_csv`. An empty cell is an unknown flag. A true cell
            is an overflow, or a finite step if the column is called `finite`. By default the column that `from_csv` reads; if
            there is none, all flags are unknown.

    Raises:
        ValueError: No column or several columns have such a name; a cell has any other value; or there is a column `step` whose
            numbers do not increase by one.
        OSError: The file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.csv")
    ...     _ = path.write_text("scale,overflow\n8,0\n8,1\n4,\n")
    ...     observed = observed_from_csv(path)
    >>> observed.scales.tolist(), observed.finite.tolist()
    ([8.0, 8.0, 4.0], [1, 0])
    """
    scales, finite = list[float](), list[int]()
    with read_table(path) as (header, rows):
        scale_index = _index(path, header, scale_column, "scale_column")
        if overflow_column is None and flag_columns(header):
            overflow_column = _flag_column(path, header, "overflow_column")
        column = overflow_column or ""
        index = None if overflow_column is None else _index(path, header, column, "overflow_column")
        true_is_finite = FLAG_COLUMNS.get(column.lower()) == "finite"
        for line, cells in rows:
            scales.append(_scale(path, line, scale_column, cells[scale_index]))
            cell = "" if index is None else cells[index]
            if cell.strip():
                finite.append(int(_flag(path, line, column, cell) == true_is_finite))
            else:
                finite.append(-1)
    if finite[-1] == -1:
        finite.pop()
    else:
        scales.append(math.nan)
    return Observed(np.array(scales, np.float64), np.array(finite, np.int8))


@contextmanager
def read_table(path: str | Path) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]]]]:
    """Provide the names of the columns, and a lazy iterator over the rows with their line numbers; then close the file."""
    check_before_opening(path, LONGEST_LOG)
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        rows = _rows(path, file)
        _, names = next(rows)
        header = [name.strip() for name in names]
        yield header, _numbered(path, header, rows)


def _rows(path: str | Path, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row of a CSV file, including the row of names. Empty lines are skipped."""
    count = width = 0
    reader = csv.reader(_lines(file), skipinitialspace=True)
    try:
        for cells in filter(None, reader):
            count += 1
            if count == 1:
                width = len(cells)
            if count > MOST_STEPS + 1:
                raise ValueError(f"{path} must have at most {MOST_STEPS} rows, got more")
            if len(cells) != width:
                expected = f"every row must have as many cells as the first row, {width}"
                raise ValueError(f"{path}, line {reader.line_num}: {expected}, got {len(cells)}")
            yield reader.line_num, cells
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a CSV file in UTF-8: {error}") from None
    if count < 2:
        raise ValueError(f"{path} must have a row of names and at least one row of values, got {count or 'no'} row")


def _numbered(path: str | Path, header: list[str], rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Yield *rows*. If a column is called "step", its numbers must increase by one, since a row stands for a step."""
    index = next((index for index, name in enumerate(header) if name.lower() == "step"), None)
    previous = "nan"  # the first row has no previous number, and any difference from NaN is NaN
    for line, cells in rows:
        if index is not None:
            cell = cells[index]
            difference = _number(cell) - _number(previous)
            if difference != 1 and not math.isnan(difference):
                raise ValueError(
                    f"{path}, line {line}: {excerpt(header[index])} must increase by 1, since each row must be a step, got "
                    f"{excerpt(cell)} after {excerpt(previous)}; add the missing rows, or rename the column"
                )
            previous = cell
        yield line, cells


def _number(cell: str) -> float:
    """Return *cell* as a number; NaN if it is not a number."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _lines(file: TextIO) -> Iterator[str]:
    for line in iter(partial(file.readline, LONGEST_ROW + 1), ""):
        if len(line) > LONGEST_ROW:
            raise csv.Error(f"each line must have at most {LONGEST_ROW} characters, got more")
        yield line


def _index(path: str | Path, header: list[str], column: str, argument: str) -> int:
    """Return the index of *column*. An error names *argument*, which specified the column."""
    if header.count(column) != 1:
        actual = f"{header.count(column)} in {excerpt(header, 400)}"
        raise ValueError(f"{path} must have exactly one column {excerpt(column)}, got {actual}; specify {argument}")
    return header.index(column)


def flag_columns(header: list[str]) -> list[str]:
    """Return the columns whose name is in `FLAG_COLUMNS`."""
    return [name for name in header if name.lower() in FLAG_COLUMNS]


def _flag_column(path: str | Path, header: list[str], argument: str) -> str:
    columns = flag_columns(header)
    if len(columns) != 1:
        actual = f"{excerpt(columns)} in {excerpt(header, 400)}"
        raise ValueError(f"{path} must have exactly one column of {list(FLAG_COLUMNS)}, got {actual}; specify {argument}")
    return columns[0]


def _meaning(column: str, means: str | None) -> str:
    """Return the meaning of a true cell: "finite" or "overflow"."""
    if means not in (None, "finite", "overflow"):
        raise ValueError(f"means must be 'finite' or 'overflow', got {excerpt(means)}")
    meaning = FLAG_COLUMNS.get(column.lower(), means)
    if meaning is None:
        remedy = "specify means, 'finite' or 'overflow'"
        raise ValueError(f"the meaning of a true cell of {excerpt(column)} is unknown; {remedy}")
    if means not in (None, meaning):
        raise ValueError(f"a true cell of {excerpt(column)} means {meaning!r}, got means={excerpt(means)}")
    return meaning


def _flag(path: str | Path, line: int, column: str, cell: str) -> bool:
    if (text := cell.strip().lower()) in FLAGS:
        return FLAGS[text]
    raise ValueError(f"{path}, line {line}: {excerpt(column)} must be one of {', '.join(FLAGS)}, got {excerpt(cell)}")


def _scale(path: str | Path, line: int, column: str, cell: str) -> float:
    if not cell.strip():
        return math.nan
    value = _number(cell)
    if not value >= 0:
        raise ValueError(f"{path}, line {line}: {excerpt(column)} must be a number of at least 0, or empty, got {excerpt(cell)}")
    return value
