"""Files of any of the kinds that record a run: a text of steps, a CSV file, or a training log."""

from pathlib import Path

from ...files import read_bounded
from ...parsing import LONGEST_LOG, excerpt
from ..traces import Trace, first_other_character, from_string, position_in
from .logs import read_log, recognised
from .tables import flag_columns, from_csv, read_table


def from_file(
    path: str | Path,
    *,
    column: str | None = None,
    means: str | None = None,
    log_format: str | None = None,
    step_pattern: str | None = None,
) -> Trace:
    """
    The trace in a file: a text as for `from_string`, a CSV file as for `from_csv`, or a training log as for `logs.read_log`.

    An option decides: `column` and `means` speak of a CSV file, `log_format` and `step_pattern` of a log. Without one, a file
    of nothing but `.`, `x` and whitespace is such a text; else a file whose name ends in `.csv` is a CSV file with a
    column of flags, or the metrics.csv of a Lightning log; and any other file is a log.

    Raises:
        ValueError: The file is none of these, is two of them, or does not tell of every step.
        OSError: It cannot be read.
    """
    of_csv, of_log = (column, means) != (None, None), (log_format, step_pattern) != (None, None)
    if of_csv and of_log:
        raise ValueError("column and means speak of a CSV file, log_format and step_pattern of a log; give those of one")
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if not of_csv and not of_log:
        if first_other_character(text) is None:
            return from_string(text)
        of_csv = Path(path).suffix.lower() == ".csv" and not _is_metrics(path, text)
    if of_csv:
        return from_csv(path, column, means)
    return _from_log(path, text, log_format, step_pattern)


def read_text(path: str | Path) -> str:
    """A file's text. Bytes that are no UTF-8, as a log can have where it was cut, become a mark that means nothing."""
    data = read_bounded(path, LONGEST_LOG).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.decode("utf-8-sig", errors="replace")


def _is_metrics(path: str | Path, text: str) -> bool:
    """Whether a CSV file is Lightning's log; none with flags of its own is."""
    flags, logged = flag_columns(read_table(path)[0]), "lightning" in recognised(text)
    if flags and logged:
        raise ValueError(
            f"{path} has flags, {excerpt(flags)}, and is Lightning's log as well: give column=..., or log_format='lightning'"
        )
    return logged


def _from_log(path: str | Path, text: str, log_format: str | None, step_pattern: str | None) -> Trace:
    try:
        return read_log(text, log_format, step_pattern).trace()
    except ValueError as error:
        wrong = None if recognised(text) else first_other_character(text)
        hint = "" if wrong is None else f"; as a text of '.' and 'x' it has {position_in(text, wrong)}"
        raise ValueError(f"{path}, read as a training log: {error}{hint}") from None
