"""Range of float16, for which loss scales are chosen, in terms of binary exponents: floor(log2(|x|))."""

import math
from collections.abc import Sequence

from ..core.statistics import SUBNORMAL, UNDERFLOW
from .records import TensorStatistics

LARGEST_EXPONENT = 15  # of the largest float16 number, 65504
SMALLEST_NORMAL = SUBNORMAL  # exponent of the smallest normal float16 number
SMALLEST_SUBNORMAL = UNDERFLOW + 1  # exponent of the smallest float16 number; half of it rounds to zero
HEADROOM = 4  # powers of two between the finite values and the largest number, from which an overflow has another cause
DIGITS_LOST = 1e-3  # relative error of a norm whose addends were rounded to 16 bits


def lost_shares(tensors: Sequence[TensorStatistics]) -> tuple[float, float]:
    """
    Return the share of the finite, non-zero values that float16 rounds to zero, and the share of those that are subnormal.

    A subnormal is below 2**-14, where float16 keeps between ten digits and none. Both are NaN if there are no such values.
    """
    counted = sum(tensor.size - tensor.zeros - tensor.nonfinite for tensor in tensors)
    lost, subnormal = (sum(getattr(tensor, name) for tensor in tensors) for name in ("underflows", "subnormals"))
    return (lost / counted, subnormal / counted) if counted else (math.nan, math.nan)
