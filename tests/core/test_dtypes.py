"""The table of dtypes agrees with ml_dtypes and with the array libraries."""

import ml_dtypes
import numpy as np
import pytest
from strategies import DTYPES

from ampscale.core.dtypes import COMPLEX_PARTS, FLOATS, INTEGERS, accumulation_dtype, compute_dtype, name_of


@pytest.mark.parametrize("name", FLOATS)
def test_format_has_the_limits_of_its_dtype(name):
    """The limits are computed from the numbers of exponent and fraction bits."""
    info, limits = ml_dtypes.finfo(DTYPES[name]), FLOATS[name]
    assert limits.largest == float(info.max)
    assert limits.smallest_normal == float(info.smallest_normal)
    assert limits.smallest_subnormal == float(info.smallest_subnormal)


def test_name_of_returns_the_same_name_for_all_libraries(library):
    """All supported dtypes are tested, including complex numbers and integers."""
    for name in [*library.dtypes, *COMPLEX_PARTS, *INTEGERS]:
        assert name_of(np.dtype(DTYPES.get(name, name))) == name
        assert name_of(library.array(1, name).dtype) == name


@pytest.mark.parametrize("dtype", [np.dtype(object), np.dtype("U3"), np.dtype(np.longdouble), np.dtype("M8[s]")], ids=repr)
def test_unsupported_dtype_raises(dtype):
    """The TypeError lists the supported dtypes."""
    with pytest.raises(TypeError, match=r"^the dtype of an array must be one of float16, bfloat16, .*, got "):
        name_of(dtype)


@pytest.mark.clause("NORMS-accumulation-dtype", "SCALING-round-once")
def test_arithmetic_uses_float32_or_float64():
    """float64 and complex128 require float64, and so does a sum over several arrays if one of them has such a dtype."""
    assert {name for name in (*FLOATS, *COMPLEX_PARTS) if compute_dtype(name) == "float64"} == {"float64", "complex128"}
    assert accumulation_dtype(["float16", "complex128", "float32"]) == "float64"
    assert accumulation_dtype(["float16", "complex64"]) == accumulation_dtype([]) == "float32"
