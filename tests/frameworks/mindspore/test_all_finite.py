"""`all_finite`, as its page has it."""

import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.refusals import check_rejected

from ampscale.frameworks.mindspore import all_finite

INF, NAN = float("inf"), float("nan")
CASES = [
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
]


@pytest.mark.clause("MINDSPORE-all-finite")
def test_all_finite_is_true_where_nothing_is_infinite_or_nan():
    """A bool array of shape (), for a tuple and a list of any shapes and dtypes."""
    for inputs, finite in CASES:
        assert bits([all_finite(inputs)]) == bits([np.asarray(finite)])


@pytest.mark.clause("MINDSPORE-all-finite-flat", "MINDSPORE-all-finite-empty")
def test_all_finite_takes_a_flat_tuple_or_list_of_arrays():
    """Anything else is a TypeError that names what came, and an empty one a ValueError."""
    wrong = [
        (array([1.0]), "ndarray"),
        ({"w": array(1)}, "dict"),
        (None, "NoneType"),
        (1.0, "float"),
        ((array(1), (array(1),)), "tuple"),
        ([[array(1)]], "list"),
        ((array(1), None), "NoneType"),
        ((1.0, 2.0), "float"),
        ((value for value in [array(1)]), "generator"),
    ]
    for inputs, came in wrong:
        check_rejected(lambda _, inputs: all_finite(inputs), [("inputs", inputs, TypeError)], got=lambda _, came=came: came)
    check_rejected(
        lambda _, inputs: all_finite(inputs), [("inputs", (), ValueError), ("inputs", [], ValueError)], got=lambda _: "none"
    )
