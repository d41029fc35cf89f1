"""The libraries of `libraries.py` keep every bit, and count device-to-host copies correctly."""

import operator

import array_api_compat
import numpy as np
from libraries import READS, on, with_dtypes
from strategies import DTYPES, bit_patterns

COUNTING = on("strict16", "torch", "jax")


@with_dtypes(*DTYPES)
def test_conversions_keep_every_bit(library, dtype):
    """Payloads of NaNs, subnormals and both zeros are kept, in arrays of any layout and shape."""
    values = bit_patterns(dtype)
    for array in (values, values[::-3], values.reshape(2, -1).T, values[7], values[:0]):
        converted = library.from_numpy([np.asarray(array)])[0]
        back = library.to_numpy({"a": converted})["a"]
        assert str(converted.dtype).endswith(dtype)
        assert (back.dtype, back.shape) == (DTYPES[dtype], np.shape(array))
        assert back.tobytes() == np.asarray(array).tobytes()


def test_conversion_copies_into_the_namespace(library):
    """array_api_compat finds the namespace of a converted array, which shares no memory with NumPy's array."""
    source = np.ones(64, np.float32)
    converted = library.from_numpy(source)
    source[...] = 2
    first = library.to_numpy(converted)
    first[...] = 3
    assert np.all(library.to_numpy(converted) == 1)
    assert array_api_compat.is_array_api_obj(converted)
    assert array_api_compat.array_namespace(converted) is library.xp


ROUTES = {name: read for name, read in READS.items() if name != "__iter__"}  # an array of shape () cannot be iterated over
ROUTES["array"] = lambda array: np.array(array, copy=None if np.__version__ >= "2" else False)


@COUNTING
def test_each_copy_is_counted_once(library):
    """Copies of bfloat16, which NumPy lacks, are counted too. After the context, copies are no longer counted."""
    cases = [(read, "int32" if read == "__index__" else "float32") for read in ROUTES]
    cases += [(read, "bfloat16") for read in ("__bool__", "__float__", "item", "tolist")]
    for read, dtype in cases:
        array = library.array(1, dtype)
        with library.count_reads() as reads:
            ROUTES[read](array)
            assert len(reads) == 1, (read, dtype)
            ROUTES[read](array)
        assert len(reads) == 2, (read, dtype)
    if library.name != "strict16":
        assert float(library.array(1)) == np.asarray(library.array(1)) == 1
    assert len(reads) == 2


@COUNTING
def test_arithmetic_is_not_counted(library):
    """Creation, arithmetic, comparison, selection and reduction stay on the device."""
    xp = library.xp
    left, right = library.array([1.0, -2.0]), library.array([3.0, 0.0])
    with library.count_reads() as reads:
        chosen = xp.where(left < right, left / right, xp.full_like(left, 0.5))
        flag = xp.all(xp.isfinite(xp.sqrt(chosen * chosen + left))) & ~xp.all(left == right)
        xp.astype(xp.reshape(xp.stack([chosen, left]), (4,)), xp.float64)[1:3]
        xp.where(flag, xp.asarray(0, dtype=xp.int32), xp.asarray(1, dtype=xp.int32))
        operator.pow(left, right)
    assert reads == []
