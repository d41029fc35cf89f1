"""Range of float16, for which loss scales are chosen, in terms of binary exponents: floor(log2(|x|))."""

from collections.abc import Sequence

from ..core.statistics import SUBNORMAL, UNDERFLOW
from .records import TensorStatistics

LARGEST_EXPONENT = 15  # of the largest float16 number, 65504
SMALLEST_NORMAL = SUBNORMAL  # exponent of the smallest normal float16 number
SMALLEST_SUBNORMAL = UNDERFLOW + 1  # exponent of the smallest float16 number; half of it rounds to zero
HEADROOM = 4  # powers of two between the finite values and the largest number, from which an overflow has another cause
DIGITS_LOST = 1e-3  # relative error of a norm whose addends were rounded to 16 bits


def lost_share(tensors: Sequence[TensorStatistics]) -> float:
    """
    Return the share of the values of *tensors* that float16 loses, among those that are not zero for another reason.

    A value below the smallest normal number counts half: it keeps between ten and no digits. If all values are
    zero, the share is 1.
    """
    size = sum(tensor.size for tensor in tensors)
    nonzero = size - sum(tensor.zeros for tensor in tensors)
    if not nonzero:
        return 1.0 if size else 0.0
    underflows = sum(tensor.underflows for tensor in tensors)
    return (underflows + 0.5 * (sum(tensor.subnormals for tensor in tensors) - underflows)) / nonzero
