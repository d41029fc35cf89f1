"""The table of dtypes agrees with what the libraries say of theirs."""

import ml_dtypes
import numpy as np
import pytest
from strategies import DTYPES

from ampscale.core.dtypes import COMPLEX_PARTS, FLOATS, INTEGERS, accumulation_dtype, compute_dtype, name_of


@pytest.mark.parametrize("name", FLOATS)
def test_the_limits_of_a_format_are_those_of_its_dtype(name):
    """The largest value, the smallest normal and the smallest subnormal follow from the widths of the fields."""
    info, found = ml_dtypes.finfo(DTYPES[name]), FLOATS[name]
    assert found.largest == float(info.max)
    assert found.smallest_normal == float(info.smallest_normal)
    assert found.smallest_subnormal == float(info.smallest_subnormal)


def test_all_libraries_share_the_names(library):
    """The dtype of an array has one name, in NumPy as in every other library."""
    for name in [*library.dtypes, *COMPLEX_PARTS, *INTEGERS]:
        assert name_of(DTYPES.get(name) or np.dtype(name)) == name
        assert name_of(library.array(1, name).dtype) == name


@pytest.mark.parametrize("dtype", [np.dtype(object), np.dtype("U3"), np.dtype(np.longdouble), np.dtype("M8[s]")], ids=repr)
def test_another_dtype_is_refused(dtype):
    """A dtype that is not in the table is a TypeError that lists the table."""
    with pytest.raises(TypeError, match=r"^dtype must be one of float16, bfloat16, .*, got "):
        name_of(dtype)


@pytest.mark.clause("NORMS-accumulation-dtype", "SCALING-round-once")
def test_arithmetic_is_done_in_32_or_64_bits():
    """Only float64 and complex128 need float64, and one of them is enough."""
    assert {name for name in (*FLOATS, *COMPLEX_PARTS) if compute_dtype(name) == "float64"} == {"float64", "complex128"}
    assert accumulation_dtype(["float16", "complex128", "float32"]) == "float64"
    assert accumulation_dtype(["float16", "complex64"]) == accumulation_dtype([]) == "float32"
