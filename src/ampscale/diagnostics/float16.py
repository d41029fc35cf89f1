"""Range of float16, for which loss scales are chosen, in terms of binary exponents: floor(log2(|x|))."""

import math
from collections.abc import Sequence

from ..core.statistics import SUBNORMAL, UNDERFLOW
from .records import TensorStatistics

LARGEST_EXPONENT = 15  # exponent of the largest float16 number, 65504
SMALLEST_NORMAL = SUBNORMAL  # exponent of the smallest normal float16 number
SMALLEST_SUBNORMAL = UNDERFLOW + 1  # exponent of the smallest float16 number; half of it rounds to zero
HEADROOM = 4  # the scale does not cause an overflow if all finite values are 2**4 times smaller than the largest float16 number
NORM_RTOL = 1e-3  # relative error of a norm whose addends were rounded to 16 bits


def lost_shares(tensors: Sequence[TensorStatistics]) -> tuple[float, float]:
    """
    Return two shares of the finite, non-zero values: those that float16 rounds to zero, and those below 2**-14.

    Below 2**-14, float16 keeps at most ten binary digits. Both shares are NaN if no value is finite and non-zero.
    """
    values = sum(tensor.size - tensor.zeros - tensor.nonfinite for tensor in tensors)
    if not values:
        return math.nan, math.nan
    return sum(tensor.underflows for tensor in tensors) / values, sum(tensor.subnormals for tensor in tensors) / values
