"""Range of float16, for which loss scales are chosen, in terms of binary exponents: floor(log2(|x|))."""

import math
from collections.abc import Sequence

from ..core.statistics import SUBNORMAL, UNDERFLOW
from .records import TensorStatistics

LARGEST_EXPONENT = 15  # of the largest float16 number, 65504
SMALLEST_NORMAL = SUBNORMAL  # exponent of the smallest normal float16 number
SMALLEST_SUBNORMAL = UNDERFLOW + 1  # exponent of the smallest float16 number; half of it rounds to zero
HEADROOM = 4  # an overflow is not caused by the scale if the finite values are 2**4 times smaller than the largest number
NORM_RTOL = 1e-3  # relative error of a norm whose addends were rounded to 16 bits


def lost_shares(tensors: Sequence[TensorStatistics]) -> tuple[float, float]:
    """
    Return the share of the finite, non-zero values that float16 rounds to zero, and the share of those that are subnormal.

    A subnormal is below 2**-14, where float16 keeps at most ten binary digits. Both shares are NaN if there are no such values.
    """
    values = sum(tensor.size - tensor.zeros - tensor.nonfinite for tensor in tensors)
    lost, subnormal = (sum(getattr(tensor, name) for tensor in tensors) for name in ("underflows", "subnormals"))
    return (lost / values, subnormal / values) if values else (math.nan, math.nan)
