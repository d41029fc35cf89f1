"""`all_finite`, as its page has it."""

import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.refusals import refused

from ampscale.frameworks.mindspore import all_finite

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("MINDSPORE-all-finite")
@pytest.mark.parametrize(
    ("inputs", "finite"),
    [
        ((array([1, 2]),), True),
        ([array([1, 2]), array(3, "float16"), array([[0.5]], "float64")], True),
        ((array([1, 2]), array(INF)), False),
        ([array(-INF, "float16"), array(1)], False),
        ((array([[1, NAN]], "float64"),), False),
        ((array(65504, "float16"), array(2.0**-24, "float16"), array(2.0**-149)), True),
        ((array([3e38, 3e38]),), True),
        ((array(INF, ml_dtypes.bfloat16),), False),
        ((array([], "float32"),), True),
        ((array([1, 2], "int32"), array([True])), True),
        ((array([1, 2], "int32"), array(NAN)), False),
        (tuple(array(1) for _ in range(100)), True),
    ],
)
def test_all_finite_is_true_where_nothing_is_infinite_or_nan(inputs, finite):
    """A bool array of shape (), for a tuple and a list of any shapes and dtypes."""
    answer = all_finite(inputs)
    assert bits([answer]) == bits([np.asarray(finite)])


@pytest.mark.clause("MINDSPORE-all-finite-flat")
@pytest.mark.parametrize(
    ("inputs", "came"),
    [
        (array([1.0]), "ndarray"),
        ({"w": array(1)}, "dict"),
        (None, "NoneType"),
        (1.0, "float"),
        ((array(1), (array(1),)), "tuple"),
        ([[array(1)]], "list"),
        ((array(1), None), "NoneType"),
        ((1.0, 2.0), "float"),
        ((value for value in [array(1)]), "generator"),
    ],
)
def test_all_finite_takes_a_flat_tuple_or_list_of_arrays(inputs, came):
    """Anything else is a TypeError that names what came."""
    with refused(TypeError, "inputs", came):
        all_finite(inputs)


@pytest.mark.clause("MINDSPORE-all-finite-empty")
@pytest.mark.parametrize("inputs", [(), []])
def test_all_finite_of_nothing_is_refused(inputs):
    """An empty tuple or list is a ValueError."""
    with refused(ValueError, "inputs", "none"):
        all_finite(inputs)
