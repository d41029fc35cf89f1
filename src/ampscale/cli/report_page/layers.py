"""Statistics of each gradient over a run, for tables."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...diagnostics.run_files import Run
from ...diagnostics.run_lines import Measurement
from ...diagnostics.window import SMALLEST_NORMAL, SMALLEST_SUBNORMAL

NO_LARGEST = -(2**15)


class Layer(NamedTuple):
    """
    Statistics of one gradient over the measured steps.

    Args:
        name: Name, or number if names are unknown.
        size: Number of values.
        lost: Share of the finite, non-zero values that float16 rounds to zero at the scale of their step; NaN if unknown.
        subnormal: Share of those that are below 2**-14 there, including lost ones.
        largest: Exponent of the largest finite value before scaling, rounded up; None if all are zero.
        nonfinite: Number of measured steps in which the gradient had infinities or NaNs.
    """

    name: str
    size: int
    lost: float
    subnormal: float
    largest: int | None
    nonfinite: int

    def order(self) -> tuple[float, ...]:
        """Return a sort key that lists gradients with infinities or NaNs first, and then those that lose most."""
        return (-self.nonfinite, *(0.0 if math.isnan(share) else -share for share in (self.lost, self.subnormal)))


def names_of(run: Run) -> list[str]:
    """Return the names of the gradients; numbers if they are unknown or if their number is another."""
    counts = Counter(measurement.gradients for measurement in run.measurements)
    number = counts.most_common(1)[0][0] if counts else len(run.names or ())
    return list(run.names) if run.names is not None and len(run.names) == number else [f"gradient {i}" for i in range(number)]


def complete(run: Run, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements of all named gradients. In other steps, some gradients were None, so that theirs have no names."""
    number = len(names_of(run))
    return [measurement for measurement in measurements if measurement.gradients == number]


def shift_of(run: Run, measurement: Measurement) -> int:
    """Return the difference between the exponents at the scale of the step and the measured ones."""
    scale = float(run.scales[measurement.position])
    if not (0 < scale < math.inf and 0 < measurement.scale < math.inf):
        return 0
    return round(math.log2(scale) - math.log2(measurement.scale))


def layers_of(run: Run, measurements: Iterable[Measurement]) -> list[Layer]:
    """Return the statistics of each gradient over *measurements*, which must be `complete`."""
    names = names_of(run)
    sizes, counted, lost, subnormal, nonfinite = (np.zeros(len(names), np.int64) for _ in range(5))
    largest = np.full(len(names), NO_LARGEST, np.int64)
    for measurement in measurements:
        shift, statistics, histograms = shift_of(run, measurement), measurement.statistics, measurement.histograms
        if statistics is not None:
            sizes = np.maximum(sizes, statistics[:, 0])
            nonfinite += statistics[:, 4] + statistics[:, 5] > 0
            unscaled = statistics[:, 7] + 1 - math.floor(math.log2(measurement.scale)) if measurement.scale > 0 else NO_LARGEST
            largest = np.maximum(largest, np.where(statistics[:, 7] == NO_LARGEST, NO_LARGEST, unscaled))
        if statistics is not None and shift == 0:
            counted += statistics[:, 0] - statistics[:, [1, 4, 5]].sum(axis=1)
            lost += statistics[:, 3]
            subnormal += statistics[:, 2]
        elif histograms is not None:
            gradients, exponents = histograms.bins()
            counted += np.bincount(gradients, histograms.counts, len(names)).astype(np.int64)
            for total, end in ((lost, SMALLEST_SUBNORMAL - 1), (subnormal, SMALLEST_NORMAL)):
                below = np.where(exponents + shift < end, histograms.counts, 0)
                total += np.bincount(gradients, below, len(names)).astype(np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = (sizes, lost / counted, subnormal / counted, largest, nonfinite)
    return [
        Layer(name, size, lost_share, subnormal_share, None if exponent == NO_LARGEST else exponent, steps)
        for name, size, lost_share, subnormal_share, exponent, steps in zip(
            names, *(column.tolist() for column in columns), strict=True
        )
    ]
