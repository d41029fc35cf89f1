"""Reader of a recorded run in any file type: overflow trace as text, CSV file, or training log."""

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

from ...files import read_bounded
from ...parsing import LONGEST_LOG, excerpt
from ..traces import Trace, from_string, other_character
from .logs import read_log, recognized_formats
from .tables import flag_columns, from_csv, read_table


def from_file(
    path: str | Path,
    *,
    column: str | None = None,
    means: str | None = None,
    log_format: str | None = None,
    step_pattern: str | None = None,
) -> Trace:
    r"""
    Read an overflow trace from a text file (see `from_string`), a CSV file (see `from_csv`) or a training log (see `read_log`).

    The options determine the file type. Without options, a file that consists of `.`, `x` and whitespace is a text file; any
    other file whose name ends in `.csv` is a CSV file, or a log if it is the metrics.csv of Lightning; all other files are logs.

    Args:
        path: File to read.
        column: Name of the column of flags in a CSV file.
        means: Meaning of a true flag in this column: "finite" or "overflow".
        log_format: Project that wrote a log.
        step_pattern: Regular expression for the lines of a log that end a step.

    Raises:
        ValueError: The options require two file types, the file is empty or invalid, or the flag of a step is unknown.
        OSError: The file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.csv")
    ...     _ = path.write_text("step,overflow\n0,0\n1,1\n")
    ...     print(from_file(path).limits)
    [ inf -inf]
    """
    is_csv = column is not None or means is not None
    is_log = log_format is not None or step_pattern is not None
    if is_csv and is_log:
        requirements = "column and means require a CSV file, log_format and step_pattern require a log"
        raise ValueError(f"{requirements}; give the options of one file type")
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if not is_csv and not is_log:
        if other_character(text) is None:
            return from_string(text)
        is_csv = Path(path).suffix.lower() == ".csv" and not _is_metrics(path, text)
    if is_csv:
        return from_csv(path, column, means)
    try:
        return read_log(text, log_format, step_pattern).trace()
    except ValueError as error:
        other = None if recognized_formats(text) else other_character(text)
        hint = f"; read as an overflow trace, it has {other}" if other else ""
        raise ValueError(f"{path}, read as a training log: {error}{hint}") from None


def read_text(path: str | Path) -> str:
    """
    Return the text of a file, with line feeds as line ends. Bytes that cannot be decoded become replacement characters.

    The file is in UTF-8, or starts with the byte order mark of UTF-16, in which PowerShell writes redirected output.
    """
    data = read_bounded(path, LONGEST_LOG)
    encoding = "utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    return data.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _is_metrics(path: str | Path, text: str) -> bool:
    """Return True if a CSV file is Lightning's metrics.csv. Raise an error if this file also has a column of flags."""
    with read_table(path) as (header, _):
        flags = flag_columns(header)
        is_metrics = "lightning" in recognized_formats(text)
    if flags and is_metrics:
        remedy = "choose one with column=... or log_format='lightning'"
        raise ValueError(f"{path} has the flag columns {excerpt(flags)} and also the scales of Lightning's log; {remedy}")
    return is_metrics
