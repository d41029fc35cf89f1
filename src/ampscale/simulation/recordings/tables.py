"""CSV files with a row for each step: the finite flags of a run, and the scales that were in force."""

import csv
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np

from ...files import check_regular
from ...parsing import LONGEST_LOG, LONGEST_ROW, MOST_STEPS, excerpt
from ..traces import Observed, Trace, from_flags

FLAG_COLUMNS = {"finite": "finite", "overflow": "overflow", "found_inf": "overflow", "skipped": "overflow"}  # what true means
MEANING = dict.fromkeys(("1", "1.0", "true", "yes"), True) | dict.fromkeys(("0", "0.0", "false", "no"), False)


def from_csv(path: str | Path, column: str | None = None, means: str | None = None) -> Trace:
    """
    The trace in a column of a CSV file, a row a step. The first row names the columns.

    Args:
        path: The file; commas between the cells, UTF-8.
        column: The column's name. By default the one column of these names, in any case: `finite`, or `overflow`,
            `found_inf`, `skipped`.
        means: What a true cell means, "finite" or "overflow". The names above say it; any other needs it.

    The cells are 1, 1.0, true, yes or 0, 0.0, false, no, in any case.

    Raises:
        ValueError: There is no such column, or more than one; it is not said what a true cell means; or a cell holds
            something else.
        OSError: The file cannot be read.
    """
    header, rows = read_table(path)
    if column is None:
        column = _flag_column(path, header)
    place, finite_if = _place(path, header, column), _meaning(column, means) == "finite"
    return from_flags(_flag(path, line, column, cells[place]) is finite_if for line, cells in rows)


def observed_from_csv(path: str | Path, scale_column: str = "scale", overflow_column: str | None = None) -> Observed:
    """
    What a CSV file says of a scaler, a row a step: its scale in force, and whether it overflowed.

    Args:
        path: The file; commas between the cells, UTF-8. The first row names the columns.
        scale_column: The column of scales; an empty cell was not seen.
        overflow_column: The column of flags, with cells as for `from_csv`; an empty cell is not known. True is an
            overflow, except in a column named `finite`. By default the one column of the names that `from_csv` knows;
            where there is none, no flag is known.

    Where the last row has no flag, it is no step: its scale is the one after the last step. Else that was not seen.

    Raises:
        ValueError: There is no such column, or more than one; or a cell holds something else.
        OSError: The file cannot be read.
    """
    header, rows = read_table(path)
    scale_place = _place(path, header, scale_column)
    if overflow_column is None and flag_columns(header):
        overflow_column = _flag_column(path, header)
    column = overflow_column or ""
    place = None if overflow_column is None else _place(path, header, column)
    finite_if, scales, finite = FLAG_COLUMNS.get(column.lower()) == "finite", list[float](), list[int]()
    for line, cells in rows:
        scales.append(_scale(path, line, scale_column, cells[scale_place]))
        flag = None if place is None else _flag(path, line, column, cells[place], empty=True)
        finite.append(-1 if flag is None else int(flag is finite_if))
    if finite[-1] == -1:
        finite.pop()
    else:
        scales.append(math.nan)
    return Observed(np.array(scales, np.float64), np.array(finite, np.int8))


def read_table(path: str | Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows with their line numbers, read while they are asked for."""
    rows = _rows(path)
    _, names = next(rows)
    return [name.strip() for name in names], rows


def _rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, the names first; empty lines mean nothing."""
    count, width = 0, 0
    check_regular(path, LONGEST_LOG)
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(_lines(file), skipinitialspace=True)
        try:
            for cells in filter(None, reader):
                count, width = count + 1, width or len(cells)
                if count > MOST_STEPS + 1:
                    raise ValueError(f"{path} must have at most {MOST_STEPS} rows, got more")
                if len(cells) != width:
                    raise ValueError(f"{path}, line {reader.line_num}: every row must have {width} cells, as the first has")
                yield reader.line_num, cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no CSV file in UTF-8: {error}") from None
    if count < 2:
        raise ValueError(f"{path} must have a row of names and at least one row of values, got {count} rows")


def _lines(file: TextIO) -> Iterator[str]:
    for line in iter(partial(file.readline, LONGEST_ROW + 1), ""):
        if len(line) > LONGEST_ROW:
            raise csv.Error(f"each line must have at most {LONGEST_ROW} characters, got more")
        yield line


def _place(path: str | Path, header: list[str], column: str) -> int:
    if header.count(column) != 1:
        raise ValueError(
            f"{path} must have one column {excerpt(column)}, got {header.count(column)} among {excerpt(header, 400)}"
        )
    return header.index(column)


def flag_columns(header: list[str]) -> list[str]:
    """Return the columns whose name is in `FLAG_COLUMNS`."""
    return [name for name in header if name.lower() in FLAG_COLUMNS]


def _flag_column(path: str | Path, header: list[str]) -> str:
    known = flag_columns(header)
    if len(known) != 1:
        got = f"{excerpt(known)} among {excerpt(header, 400)}"
        raise ValueError(f"{path} must have one column of {list(FLAG_COLUMNS)}, or one be named; got {got}")
    return known[0]


def _meaning(column: str, means: str | None) -> str:
    """What a true cell of a column means."""
    if means not in (None, "finite", "overflow"):
        raise ValueError(f"means must be 'finite' or 'overflow', got {excerpt(means)}")
    named = FLAG_COLUMNS.get(column.lower(), means)
    if named is None:
        raise ValueError(f"what does a true cell of {excerpt(column)} mean? give means='finite' or means='overflow'")
    if means not in (None, named):
        raise ValueError(f"a true cell of {excerpt(column)} means {named!r}, got means={excerpt(means)}")
    return named


def _flag(path: str | Path, line: int, column: str, cell: str, *, empty: bool = False) -> bool | None:
    word = cell.strip().lower()
    if word in MEANING:
        return MEANING[word]
    if empty and not word:
        return None
    raise ValueError(f"{path}, line {line}: {excerpt(column)} must be one of {', '.join(MEANING)}, got {excerpt(cell)}")


def _scale(path: str | Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell.strip() or math.nan)
    except ValueError:
        value = -1.0
    if value < 0:
        raise ValueError(f"{path}, line {line}: {excerpt(column)} must be a number of at least 0, or empty, got {excerpt(cell)}")
    return value
