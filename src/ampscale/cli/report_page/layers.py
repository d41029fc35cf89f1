"""Statistics of each gradient over a run, for tables."""

import math
from collections.abc import Iterable
from statistics import mode
from typing import NamedTuple

import numpy as np

from ...core.statistics import NO_LARGEST
from ...diagnostics.float16 import SMALLEST_NORMAL, SMALLEST_SUBNORMAL
from ...diagnostics.records import TensorStatistics
from ...diagnostics.run_files import Run
from ...diagnostics.run_lines import Measurement


class Layer(NamedTuple):
    """Statistics of one gradient over the measured steps."""

    name: str  # "gradient" and its index if names are unknown
    size: int  # number of values
    lost: float  # share of the finite, non-zero values that float16 rounds to zero at the scale of their step; NaN if unknown
    subnormal: float  # share of these values that are below 2**-14 at that scale, including lost values
    nonfinite: int  # number of measured steps in which the gradient had infinities or NaNs
    largest: int | None  # exponent of the smallest power of two above all unscaled values; None if unknown or if all are zero

    def sort_key(self) -> tuple[float, ...]:
        """Return a sort key that lists gradients with infinities or NaNs first, and then those that lose most."""
        return (-self.nonfinite, *(0.0 if math.isnan(share) else -share for share in (self.lost, self.subnormal)))


def complete_measurements(run: Run) -> tuple[list[str], list[Measurement]]:
    """
    Return the names of the gradients, and the measurements with the most common number of gradients.

    Measurements with a different number are left out: some of their gradients were None, so the names of the others are unknown.
    """
    if not run.measurements:
        return [], []
    number = mode(measurement.gradient_count for measurement in run.measurements)
    names = list(run.names or ())
    if len(names) != number:
        names = [f"gradient {index}" for index in range(number)]
    return names, [measurement for measurement in run.measurements if measurement.gradient_count == number]


def shift_of(run: Run, measurement: Measurement) -> int:
    """Return the difference between the exponents at the scale of the step and the measured exponents; 0 if unknown."""
    scale = float(run.scales[measurement.position])
    if not (0 < scale < math.inf and 0 < measurement.scale < math.inf):
        return 0
    return round(math.log2(scale) - math.log2(measurement.scale))


def layers_of(run: Run, names: list[str], measurements: Iterable[Measurement]) -> list[Layer]:
    """Return the statistics of each gradient, given the *names* and *measurements* that `complete_measurements` returns."""
    sizes, nonfinite = (np.zeros(len(names), np.int64) for _ in range(2))
    float16_counts = np.zeros((3, len(names)), np.int64)
    largest = np.full(len(names), NO_LARGEST, np.int64)
    for measurement in measurements:
        # Name the columns: each field is an array with one number for each gradient.
        statistics = None if measurement.statistics is None else TensorStatistics(*measurement.statistics.T)
        if statistics is not None:
            sizes = np.maximum(sizes, statistics.size)
            nonfinite += statistics.nonfinite > 0
            if 0 < measurement.scale < math.inf:
                unscaled = statistics.largest + 1 - math.floor(math.log2(measurement.scale))
                largest = np.maximum(largest, np.where(statistics.largest == NO_LARGEST, NO_LARGEST, unscaled))
        float16_counts += _float16_counts(measurement, statistics, shift_of(run, measurement))
    values, lost, subnormal = float16_counts
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = [column.tolist() for column in (sizes, lost / values, subnormal / values, nonfinite)]
    largest_or_none = (None if exponent == NO_LARGEST else exponent for exponent in largest.tolist())
    return [Layer(*row) for row in zip(names, *columns, largest_or_none, strict=True)]


def _float16_counts(measurement: Measurement, statistics: TensorStatistics | None, shift: int) -> np.ndarray:
    """Return the counts of finite, non-zero values, and of lost and subnormal ones: int64, shape (3, number of gradients)."""
    if statistics is not None and shift == 0:
        finite_values = statistics.size - statistics.zeros - statistics.nonfinite
        return np.array([finite_values, statistics.underflows, statistics.subnormals], np.int64)
    counts = np.zeros((3, measurement.gradient_count), np.int64)
    if (histograms := measurement.histograms) is not None:
        gradients, exponents = histograms.bins()
        # float16 rounds a value between 2**-25 and 2**-24 up, so only values with a smaller exponent count as lost.
        for row, end in zip(counts, (math.inf, SMALLEST_SUBNORMAL - 1, SMALLEST_NORMAL), strict=True):
            below = np.where(exponents + shift < end, histograms.counts, 0)
            row += np.bincount(gradients, below, len(row)).astype(np.int64)
    return counts
