"""The strict namespace refuses what it says it refuses, and computes the rest as NumPy does."""

import operator

import array_api_strict
import numpy as np
import pytest
import strict16 as xp
from strategies import DTYPES, alike

FLOATS = [xp.float16, xp.bfloat16, xp.float32, xp.float64]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
READS = {
    "__bool__": bool,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": lambda array: "ab"[array],
    "__array__": np.asarray,
    "__iter__": list,
    "item": lambda array: array.item(),
    "tolist": lambda array: array.tolist(),
}


def of(dtype, *values):
    """An array of shape (number of values,)."""
    return xp.asarray(values, dtype=dtype)


def read(how):
    """Reads an array that can be read in this way."""
    return READS[how](xp.asarray([1] if how == "__iter__" else 1, dtype=xp.int32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("operation", [*ARITHMETIC, *COMPARISONS], ids=lambda operation: operation.__name__)
def test_one_dtype_computes_as_numpy_does(operation, dtype):
    """Beside an array of its own dtype an array does what NumPy's does, in its dtype, and says nothing of infinities."""
    left, right = of(dtype, 1.5, -3, 0, 6e4), of(dtype, 3, -3, 0, 6e4)
    with np.errstate(all="ignore"):
        wanted = operation(xp.peek(left), xp.peek(right))
    assert alike(xp.peek(operation(left, right)), wanted)
    assert wanted.dtype == (bool if operation in COMPARISONS else dtype)


@pytest.mark.parametrize("other", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("operation", [*ARITHMETIC, *COMPARISONS], ids=lambda operation: operation.__name__)
def test_two_dtypes_are_refused(operation, dtype, other):
    """Nothing is promoted, also where no bit would be lost."""
    if dtype != other:
        with pytest.raises(TypeError, match="one dtype"):
            operation(of(dtype, 1), of(other, 1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("number", [2, 2.0, 2j, True, np.float32(2), np.float64(2), np.ones(1, np.float32)], ids=repr)
@pytest.mark.parametrize("operation", [*ARITHMETIC, *COMPARISONS], ids=lambda operation: operation.__name__)
def test_numbers_beside_floats_are_refused(operation, dtype, number):
    """A Python number, a NumPy scalar and a NumPy array on either side are TypeErrors."""
    with pytest.raises(TypeError):
        operation(of(dtype, 1), number)
    with pytest.raises(TypeError):
        operation(number, of(dtype, 1))


@pytest.mark.parametrize(
    "call",
    [
        lambda one, other: xp.where(of(xp.bool, True), one, other),
        lambda one, other: xp.stack([one, other]),
        xp.minimum,
        xp.maximum,
        lambda one, other: one.__setitem__(..., other),
    ],
    ids=["where", "stack", "minimum", "maximum", "setitem"],
)
def test_functions_refuse_what_operators_refuse(call):
    """Choosing, stacking and writing promote nothing either, and take no numbers."""
    call(of(xp.float16, 1), of(xp.float16, 1))
    for other in (of(xp.float32, 1), of(xp.bfloat16, 1), 1.0, np.ones(1, np.float16)):
        with pytest.raises(TypeError):
            call(of(xp.float16, 1), other)


def test_a_python_bool_is_no_condition():
    """What decides is an array as well."""
    with pytest.raises(TypeError, match="got True of type bool"):
        xp.where(True, of(xp.float32, 1), of(xp.float32, 2))


@pytest.mark.parametrize("number", [2.0, True, 2**31], ids=repr)
def test_integers_take_a_python_int_alone(number):
    """Where nothing can be rounded or promoted a number may stand: an int of the array's range, and no other."""
    assert alike(xp.peek(of(xp.int32, 4) + 2), np.asarray([6], np.int32))
    with pytest.raises((TypeError, OverflowError)):
        of(xp.int32, 4) + number


def test_integers_become_no_floats():
    """A division or a root of integers, of which the standard does not say the dtype, is refused."""
    for call in (lambda array: array / array, xp.sqrt):
        with pytest.raises(TypeError, match="would promote int32 to float64"):
            call(of(xp.int32, 4))


@pytest.mark.parametrize("how", READS)
def test_a_host_read_is_refused(how):
    """Whatever looks at a value raises, and names itself."""
    with pytest.raises(xp.HostReadError, match=how):
        read(how)


@pytest.mark.parametrize("how", READS)
def test_a_host_read_is_counted_where_it_is_allowed(how):
    """Inside the context it works, and is written down; afterwards it is refused again."""
    with xp.counting_reads() as reads:
        read(how)
        read(how)
    assert reads == [how, how]
    with pytest.raises(xp.HostReadError):
        read(how)


@pytest.mark.parametrize(
    "look",
    [
        lambda array: xp.full_like(of(xp.float32, 1, 2), array),
        lambda array: of(xp.float32, 1, 2)[xp.astype(array, xp.int32)],
        lambda array: xp.asarray([array, array]),
        lambda array: 1.0 in xp.reshape(array, (1,)),
    ],
    ids=["fill", "index", "list", "contains"],
)
def test_hidden_reads_are_refused(look):
    """An array as a value to fill with, as an index or in a list would be looked at by some library."""
    with pytest.raises(xp.HostReadError):
        look(xp.asarray(1.0, dtype=xp.float32))


def test_writing_in_place_keeps_the_array():
    """The same array holds the new values, whole or in part."""
    array = same = of(xp.bfloat16, 1, 2, 3)
    array[...] = of(xp.bfloat16, 4, 5, 6)
    array[1:] = of(xp.bfloat16, 8, 9)
    assert same is array
    assert alike(xp.peek(array), np.asarray([4, 8, 9], DTYPES["bfloat16"]))


def test_a_peek_is_a_copy():
    """A test that looks at a result cannot change it."""
    array = of(xp.float16, 1)
    xp.peek(array)[0] = 2
    assert xp.peek(array) == 1


def test_an_imaginary_part_is_not_lost_in_silence():
    """A complex array becomes real by `real`, never by a conversion."""
    array = of(xp.complex64, 3 + 4j)
    with pytest.raises(TypeError, match="imaginary"):
        xp.astype(array, xp.float32)
    assert alike(xp.peek(xp.imag(array)), np.asarray([4], np.float32))


def test_another_device_is_refused():
    """There is one device, and it is the host's only in name."""
    with pytest.raises(ValueError, match="device must be"):
        xp.asarray(1.0, device="cuda")


def test_all_but_the_formats_is_the_standard():
    """Each name that it offers is one of the standard's, save two dtypes and what counts and looks."""
    offered = {name for name in vars(xp) if not name.startswith("_")}
    own = {"float16", "bfloat16", "Array", "HostReadError", "counting_reads", "peek"}
    imported = {"sys", "np", "ml_dtypes", "contextmanager", "ContextVar"}
    assert offered - own - imported <= set(array_api_strict.__all__)
    assert {name for name in vars(xp.Array) if not name.startswith("_")} <= {"tolist", "item", *dir(array_api_strict.ones(1))}
