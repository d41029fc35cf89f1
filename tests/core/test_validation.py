"""Checks that an argument has methods, or is an array of an expected shape."""

from functools import partial

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from ampscale import LossScaleRule, presets
from ampscale.core.validation import (
    check_gradients,
    check_methods,
    check_out,
    check_scale_array,
    check_scale_host,
    check_type,
    check_writable,
)
from ampscale.optimizers import OptimizerState


def test_object_without_a_method_raises():
    """An attribute of that name that is not callable raises too."""
    check_methods([], "network", "append", "pop")
    for methods in (("append", "push"), ("__doc__",)):
        with pytest.raises(TypeError, match=r"^network must have the methods .* of type list"):
            check_methods([], "network", *methods)


def test_error_for_another_type_contains_the_remedy():
    """A class or a function such as ``optax.adam`` must be called, and an optimizer of torch replaced."""
    with pytest.raises(TypeError, match=r"^network must be an object, got the class list: write list\(\)$"):
        check_methods(list, "network", "append", "pop")
    with pytest.raises(TypeError, match=r"; use ampscale.optimizers, or a training cell, which accepts torch.optim$"):
        check_methods(type("SGD", (), {"param_groups": []})(), "optimizer", "init", "update")
    for check in (
        partial(check_methods, presets.torch, "rule", "init"),
        partial(check_type, presets.torch, "rule", LossScaleRule),
    ):
        with pytest.raises(TypeError, match=r" of type function; call it: torch\(\.\.\.\)$"):
            check()


def test_error_names_the_expected_type_with_its_article():
    with pytest.raises(TypeError, match=r"^state must be an OptimizerState, got None of type NoneType$"):
        check_type(None, "state", OptimizerState)


def test_scale_of_another_type_raises():
    """Tensors of torch have a flag for each layout that is not dense."""
    sparse = np.ones(1).view(type("Sparse", (np.ndarray,), {"is_sparse": True}))
    for check, value, message in (
        (check_scale_array, 8.0, r"an array of shape \(\) or \(1,\), got 8.0 of type float$"),
        (check_scale_array, np.ones((), "U1"), r"float32 or float64, got str32$"),
        (check_scale_array, sparse, r"a dense tensor, got a sparse one; pass scale.item\(\)$"),
        (check_scale_host, "8", r"a positive, finite number, or a float32 or float64 array of shape \(\) or \(1,\), got '8'"),
    ):
        with pytest.raises(TypeError, match=f"^scale must be {message}"):
            check(value, "scale")


def test_scale_of_another_shape_raises():
    """Paddle's scalers keep the scale in an array of shape (1,)."""
    for shape in ((), (1,)):
        check_scale_array(np.ones(shape, np.float32), "scale")
    for shape in ((0,), (2,), (1, 1)):
        with pytest.raises(ValueError, match=r"^scale must have shape \(\) or \(1,\), got \("):
            check_scale_array(np.ones(shape, np.float32), "scale")


def test_out_with_another_shape_raises():
    """The error is raised even if NumPy could broadcast a result to the shape of *out*."""
    with pytest.raises(ValueError, match=r"^out\[1\] must have shape \(1,\), got \(3,\)$"):
        check_out([np.ones(2), np.ones(3)], [np.ones(2), np.ones(1)])


def test_writable_array_has_memory_for_each_value():
    """An array of at most one value may have any stride."""
    value = np.ones(1)
    for size in (0, 1):
        check_writable(as_strided(value, (size,), (0,)), "out")
    with pytest.raises(ValueError, match=r"^out must have memory for each value, got an expanded array; copy it$"):
        check_writable(as_strided(value, (2,), (0,)), "out")


def test_gradient_is_none_or_a_float_array_of_the_shape_of_its_parameter():
    """The message names the path of the gradient."""
    params = {"b": np.ones(()), "w": np.ones(2)}
    check_gradients(params, [(params["b"], None), (params["w"], np.ones(2, np.float16))])
    for gradient, error, message in (
        (1.0, TypeError, "an array, got 1.0 of type float"),
        (np.ones(2, np.int32), TypeError, r"have one of the dtypes .*, got int32"),
        (np.ones((1, 2)), ValueError, r"have shape \(2,\), got \(1, 2\)"),
    ):
        with pytest.raises(error, match=rf"^gradients\['w'\] must (be )?{message}$"):
            check_gradients(params, [(params["b"], None), (params["w"], gradient)])
