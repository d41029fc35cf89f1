"""The namespace `strict16` rejects mixed dtypes, numbers and host reads."""

import itertools
import operator
from functools import partial

import numpy as np
import pytest
import strict16 as xp
from errors import unexpected
from libraries import READS
from strategies import alike

FLOATS = [xp.float16, xp.bfloat16, xp.float32, xp.float64]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
OPERATIONS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, *COMPARISONS]


def array_of(dtype, *values):
    """Return a 1-d array of *values*."""
    return xp.asarray(values, dtype=dtype)


def read(how):
    """Read an array on the host with `READS[how]`."""
    return READS[how](xp.asarray([1] if how == "__iter__" else 1, dtype=xp.int32))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_operations_on_two_types_raise(operation):
    """The operands have two dtypes, or one of them, on either side, is a number, a NumPy scalar or a NumPy array."""
    rows = [(array_of(left, 1), array_of(right, 1), "one dtype") for left, right in itertools.permutations(FLOATS, 2)]
    numbers = (2, 2.0, 2j, True, np.float32(2), np.float64(2), np.ones(1, np.float32))
    for dtype, number in itertools.product(FLOATS, numbers):
        rows += [(array_of(dtype, 1), number, ""), (number, array_of(dtype, 1), "")]
    assert unexpected((operands, partial(operation, *operands), TypeError, pattern) for *operands, pattern in rows) == []


def test_functions_reject_two_dtypes():
    """The functions select, stack, compare and assign."""
    calls = [
        lambda left, right: xp.where(array_of(xp.bool, True), left, right),
        lambda left, right: xp.stack([left, right]),
        xp.minimum,
        xp.maximum,
        lambda left, right: left.__setitem__(..., right),
    ]
    for call in calls:
        call(array_of(xp.float16, 1), array_of(xp.float16, 1))
    others = (array_of(xp.float32, 1), array_of(xp.bfloat16, 1), 1.0, np.ones(1, np.float16))
    cases = [((call, other), partial(call, array_of(xp.float16, 1), other), TypeError, "") for call in calls for other in others]
    assert unexpected(cases) == []


def test_functions_reject_implicit_conversions():
    """A condition must be an array, integers do not become floats, only `imag` drops a part, and the device must exist."""
    condition = partial(xp.where, True, array_of(xp.float32, 1), array_of(xp.float32, 2))
    division = partial(operator.truediv, array_of(xp.int32, 4), array_of(xp.int32, 4))
    cases = [
        ("condition", condition, TypeError, "got True of type bool"),
        ("division", division, TypeError, "would promote int32 to float64"),
        ("root", partial(xp.sqrt, array_of(xp.int32, 4)), TypeError, "would promote int32 to float64"),
        ("complex", partial(xp.astype, array_of(xp.complex64, 3 + 4j), xp.float32), TypeError, "imaginary"),
        ("device", partial(xp.asarray, 1.0, device="cuda"), ValueError, "device must be"),
    ]
    assert unexpected(cases) == []
    assert alike(xp.peek(xp.imag(array_of(xp.complex64, 3 + 4j))), np.asarray([4], np.float32))


def test_a_host_read_raises_unless_it_is_counted():
    """The error contains the name of the read. Inside the context reads work and are recorded; afterwards they raise again."""
    rejected = [(how, partial(read, how), xp.HostReadError, how) for how in READS]
    assert unexpected(rejected) == []
    with xp.counting_reads() as reads:
        for how in READS:
            read(how)
            read(how)
    assert reads == [how for how in READS for _ in range(2)]
    assert unexpected(rejected) == []


def test_implicit_reads_raise():
    """Some libraries read an array that is a fill value, an index, an element of a list or the operand of `in`."""
    array = xp.asarray(1.0, dtype=xp.float32)
    reads = {
        "fill": lambda: xp.full_like(array_of(xp.float32, 1, 2), array),
        "index": lambda: array_of(xp.float32, 1, 2)[xp.astype(array, xp.int32)],
        "list": lambda: xp.asarray([array, array]),
        "contains": lambda: 1.0 in xp.reshape(array, (1,)),
    }
    assert unexpected((name, read, xp.HostReadError, "") for name, read in reads.items()) == []
