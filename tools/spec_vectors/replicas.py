"""Mean of the gradients of several replicas, as in spec/60-replicas.md."""

import math
from collections.abc import Sequence
from fractions import Fraction

from ampscale_conformance.model.bits import Bits
from ampscale_conformance.model.floats import Number, is_negative
from ampscale_conformance.oracle.arithmetic import nearest, total
from ampscale_conformance.oracle.tensors import from_numbers, numbers, part_of


def mean(replicas: Sequence[Sequence[Bits]]) -> list[Bits]:
    """Return the exact elementwise mean of the replicas' arrays, rounded once to their dtypes."""
    return [_mean_of(leaves) for leaves in zip(*replicas, strict=True)]


def _mean_of(leaves: Sequence[Bits]) -> Bits:
    dtype = leaves[0].dtype
    rows = zip(*map(numbers, leaves), strict=True)
    return from_numbers(dtype, leaves[0].shape, [_mean(row, part_of(dtype)) for row in rows])


def _mean(values: Sequence[Number], dtype: str) -> Number:
    if not all(map(math.isfinite, values)):
        return total(values, dtype)
    negative = all(map(is_negative, values))
    mean = sum((Fraction(value) for value in values), Fraction(0)) / len(values)
    return nearest(*mean.as_integer_ratio(), dtype, negative)
