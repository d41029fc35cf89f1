"""`ampscale diagnose`: saved gradients, and the scales that suit them."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from ..core.statistics import LOWEST
from ..diagnostics.float16 import LARGEST_EXPONENT, lost_shares
from ..diagnostics.history import Limits
from ..diagnostics.records import Histogram, TensorStatistics, histograms_of, statistics_of
from ..diagnostics.suggest import suggest
from ..functional import exponent_histogram, measure
from .commands import JSON, command, usage_errors
from .describe import counted, exact, fold, percent
from .gradient_files import read_gradients
from .progress import progress
from .rule_arguments import NUMBER
from .suggest import SHARE, suggestion_text
from .trace_options import FILE
from .trajectories import to_json


class Row(NamedTuple):
    """One gradient, with its statistics and its histogram."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    statistics: TensorStatistics
    histogram: Histogram


@command(
    "ampscale diagnose gradients.safetensors",
    "ampscale diagnose gradients.npz --scale 2**16",
    short_help="Describe saved gradients, and suggest a scale.",
)
@click.argument("file", metavar="FILE", type=FILE)
@click.option("--scale", type=NUMBER, default=1.0, help="Factor by which the gradients in FILE were scaled. [default: 1]")
@SHARE
@JSON
def diagnose(file: Path, scale: float, share: float, as_json: bool) -> None:
    """
    Describe how float16 represents the gradients in a file, and print the scales that suit them.

    FILE is .npz or .safetensors, with arrays of float16, bfloat16, float32, float64 or complex numbers; other arrays are
    ignored. A value is lost if float16 rounds it to zero. The verdict is "underflow" if float16 loses more than --share of the
    values, or keeps fewer digits of more than 10 % of them. The suggested scales neither overflow nor lose more than --share of
    the values; they err on the safe side, by less than a factor of four.

    \b
    With --json:
      verdict         "healthy", "underflow", "overflow", "nan" or "zero"
      message         the verdict in a sentence
      suggestion      low, high, recommended and lost_share; null if all
                      values are zero or not finite
      tensors         for each array its name, dtype, shape, the statistics
                      of `ampscale.measure`, and the lost share, or null
    """  # noqa: D301 - click does not rewrap a paragraph after a backspace character
    if not (0 < scale < math.inf):
        raise click.UsageError(f"--scale must be a positive, finite number, got {scale:g}")
    with usage_errors(), progress("Measuring") as advance:
        rows = [_measured(*gradient) for gradient in read_gradients(file, advance)]
        if not rows:
            raise ValueError(f"{file} must contain an array of floating-point numbers, got none")
        histograms = [row.histogram for row in rows]
        suggestion = suggest(histograms, scale, share) if any(histogram.counts for histogram in histograms) else None
    verdict, message = _verdict(rows, scale, share)
    if as_json:
        suggested = None if suggestion is None else suggestion._asdict()
        tensors = [_document(row) for row in rows]
        click.echo(to_json({"verdict": verdict, "message": message, "suggestion": suggested, "tensors": tensors}))
        return
    _print(rows)
    click.echo(fold(message))
    if suggestion is not None:
        click.echo(fold(suggestion_text(suggestion, share)))


def _measured(name: str, dtype: str, values: np.ndarray) -> Row:
    (statistics,) = statistics_of(measure([values]).tolist())
    (histogram,) = histograms_of(exponent_histogram([values]).tolist(), LOWEST)
    return Row(name, dtype, values.shape, statistics, histogram)


def _verdict(rows: Sequence[Row], scale: float, share: float) -> tuple[str, str]:
    """Return the verdict in a word and in a sentence."""
    at = f" at scale {exact(scale)}"
    if nans := [(row.name, row.statistics.nans) for row in rows if row.statistics.nans]:
        return "nan", _not_finite(at, nans, "NaN", "NaNs")
    if infinities := [(row.name, row.statistics.infinities) for row in rows if row.statistics.infinities]:
        return "overflow", _not_finite(at, infinities, "infinity", "infinities")
    return _finite_verdict(rows, at, share)


def _finite_verdict(rows: Sequence[Row], at: str, share: float) -> tuple[str, str]:
    """Return the verdict on finite gradients."""
    statistics = [row.statistics for row in rows]
    nonzero = sum(each.size - each.zeros - each.nonfinite for each in statistics)
    lost = sum(each.underflows for each in statistics)
    if not nonzero:
        return "zero", f"All values are zero{at}; if the true gradients are not, the scale is too small."
    if max(each.largest for each in statistics) > LARGEST_EXPONENT:
        worst = max(rows, key=lambda row: row.statistics.largest)
        return "overflow", f"Overflow{at}: {worst.name} has values beyond the range of float16."
    if lost > share * nonzero:
        worst = max(rows, key=lambda row: row.statistics.underflows)
        return "underflow", f"Underflow{at}: float16 loses {percent(lost / nonzero)} of the values, most in {worst.name}."
    imprecise = sum(each.subnormals for each in statistics) - lost
    if imprecise > Limits().subnormal_share * nonzero:
        worst = max(rows, key=lambda row: row.statistics.subnormals - row.statistics.underflows)
        few_digits = f"float16 represents {percent(imprecise / nonzero)} of the values with fewer digits, most in {worst.name}"
        return "underflow", f"Underflow{at}: {few_digits}."
    digits = f", and represents {percent(imprecise / nonzero)} with fewer digits" if imprecise else ""
    return "healthy", f"Healthy{at}: all values are finite. float16 loses {percent(lost / nonzero)} of them{digits}."


def _not_finite(at: str, counts: Sequence[tuple[str, int]], singular: str, plural: str) -> str:
    """Return the sentence about non-finite values, given the names of the arrays with such values and their numbers."""
    first, _ = counts[0]
    total = sum(count for _, count in counts)
    others = f" and {counted(len(counts) - 1, 'other array')}" if len(counts) > 1 else ""
    # A backward pass in float16 that overflows produces NaNs, too, so they do not prove that a smaller scale would not help.
    remedy = "if all values are finite without scaling, the scale is too large; otherwise no scale helps"
    return f"Not finite{at}: {total:,} {singular if total == 1 else plural} in {first}{others}; {remedy}."


def _document(row: Row) -> dict[str, Any]:
    share, _ = lost_shares([row.statistics])
    lost = None if math.isnan(share) else share
    return {"name": row.name, "dtype": row.dtype, "shape": row.shape, **row.statistics._asdict(), "lost": lost}


def _print(rows: Sequence[Row]) -> None:
    from .tables import Column, number_columns, table, trimmed_console

    titles = [Column("array", overflow="fold"), Column("dtype", no_wrap=True), Column("shape", overflow="fold")]
    counts = number_columns("inf", "nan", "zeros", "lost", "sub-\nnormal", "smallest", "largest")
    with trimmed_console() as console:
        console.print(table([*titles, *counts], map(_cells, rows)))


def _cells(row: Row) -> Iterator[str]:
    statistics = row.statistics
    yield from (row.name, row.dtype, "x".join(map(str, row.shape)) or "()")
    yield from (f"{count:,}" for count in (statistics.infinities, statistics.nans))
    yield percent(statistics.zeros / statistics.size) if statistics.size else "-"
    yield from map(percent, lost_shares([statistics]))
    yield from ("-" if statistics.is_empty else f"2^{exponent}" for exponent in (statistics.smallest, statistics.largest))
