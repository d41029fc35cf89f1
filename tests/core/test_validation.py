"""Values that the argument checks accept, and the errors for others."""

import numpy as np
import pytest
from errors import unexpected

from ampscale.core.validation import check_methods, check_scale_array, check_writable


def test_scale_array_must_have_one_value_and_float32_or_float64():
    """Shapes () and (1,) are accepted."""
    for shape in ((), (1,)):
        for dtype in (np.float32, np.float64):
            check_scale_array(np.ones(shape, dtype), "scale")
    rows = [
        *[
            (shape, np.ones(shape, np.float32), ValueError, r"^scale must have shape \(\) or \(1,\)")
            for shape in ((0,), (2,), (1, 1))
        ],
        ("float16", np.ones((), np.float16), TypeError, "^scale must be float32 or float64, got float16"),
        ("list", [1.0], TypeError, "^scale must be an array of shape"),
    ]
    assert (
        unexpected([(label, lambda value=value: check_scale_array(value, "scale"), *rest) for label, value, *rest in rows]) == []
    )


def test_object_without_a_method_raises():
    """An attribute of that name that is not callable raises too."""
    check_methods([], "network", "append", "pop")
    for methods in (("append", "push"), ("__doc__",)):
        with pytest.raises(TypeError, match=r"^network must have the methods .* of type list"):
            check_methods([], "network", *methods)


def test_a_read_only_array_is_rejected_with_the_reason():
    """An array of a library whose arrays are all immutable has another message."""
    array = np.ones(2)
    check_writable(array, "out")
    array.flags.writeable = False
    with pytest.raises(ValueError, match=r"^out must be writable, got a read-only array"):
        check_writable(array, "out")
