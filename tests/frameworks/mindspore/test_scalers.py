"""`LossScaler`, `StaticLossScaler`, `DynamicLossScaler` and `all_finite`, as MindSpore documents them."""

import array_api_strict
import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.published import SETTINGS, every_pattern, states_of
from frameworks.rejections import rejects
from presets import loops_mindspore

from ampscale.frameworks.mindspore import DynamicLossScaler, LossScaler, StaticLossScaler, all_finite

INF, NAN = float("inf"), float("nan")
SCALERS = [StaticLossScaler, lambda value: DynamicLossScaler(value, 2, 3)]
both_scalers = pytest.mark.parametrize("scaler_of", SCALERS, ids=["static", "dynamic"])


def state_of(scaler):
    """Return the scale and the count of finite steps."""
    return float(scaler.scale_value), int(scaler.counter)


@pytest.mark.clause("MINDSPORE-scaler-abstract")
@pytest.mark.parametrize("missing", ["scale", "unscale", "adjust"])
def test_a_subclass_must_implement_all_three_methods(missing):
    """A subclass that lacks a method cannot be instantiated."""
    methods = {name: lambda _, value: value for name in ("scale", "unscale", "adjust")}
    assert type("Subclass", (LossScaler,), methods)().adjust(True) is True
    del methods[missing]
    with pytest.raises(TypeError, match=missing):
        type("Subclass", (LossScaler,), methods)()


@pytest.mark.clause("MINDSPORE-scaler-scale", "MINDSPORE-scaler-unscale")
@both_scalers
@pytest.mark.parametrize(
    ("dtype", "value", "inputs", "scaled", "unscaled"),
    [
        ("float32", 3, [1, 5, 7], [3, 15, 21], [1 / 3, float.fromhex("0x1.aaaaaap+0"), 7 / 3]),
        ("float64", 3, [1, 5, 7], [3, 15, 21], [1 / 3, 5 / 3, 7 / 3]),
        ("float16", 2049, [1, 0, 2], [2048, 0, 4096], [0.00048804283142089844, 0, 0.0009760856628417969]),
        ("float16", 2.0**25, [1024, INF, NAN], [INF, INF, NAN], [2.0**-15, INF, NAN]),
        (ml_dtypes.bfloat16, 257, [1, 3], [256, 772], [1 / 257, 3 / 257]),
    ],
)
def test_scale_multiplies_and_unscale_divides(scaler_of, dtype, value, inputs, scaled, unscaled):
    """Each result is computed in at least float32 and rounded once to the input's dtype. The input is unchanged."""
    scaler, values = scaler_of(value), array(inputs, dtype)
    old_bits = bits([values])
    up, down = scaler.scale(values), scaler.unscale(values)
    assert bits([up, down]) == bits([array(scaled, dtype), array(unscaled, dtype)])
    assert bits([values]) == old_bits
    assert not np.shares_memory(up, values)
    assert not np.shares_memory(down, values)


@pytest.mark.clause("MINDSPORE-scale-value", "MINDSPORE-scale-value-attribute")
@both_scalers
def test_scale_value_is_a_float32_copy(scaler_of):
    """Writing into the copy does not change the scaler, and later steps do not change the copy."""
    for value in (1, 1.0, 1024.5, 16777217, np.float64(2.5), float(np.finfo(np.float32).max)):
        scaler = scaler_of(value)
        scale = scaler.scale_value
        assert bits([scale]) == bits([np.float32(value)])
        scaler.adjust(False)
        assert scale == np.float32(value)
        scale[...] = 3
        assert scaler.scale_value in (np.float32(value), max(1, np.float32(value) / 2))  # a dynamic scale has backed off


def test_an_error_names_mindspores_argument_and_changes_nothing():
    """The functions that the methods call have another name for this argument. Afterwards, any library's arrays can be scaled."""
    one, strict = array(1), array_api_strict.ones(1)
    for scaler in (StaticLossScaler(8), DynamicLossScaler(8, 2, 3)):
        for inputs, message in (
            ([1.0], r"inputs\[0\] must be an array, .*, got float"),
            ([strict, array_api_strict.asarray(1)], r"inputs\[1\] must be floating-point or complex, got int64"),
            ([strict, one], r"arrays must .*inputs\[0\] from array_api_strict .*inputs\[1\] from numpy on cpu"),
        ):
            for function in (scaler.scale, scaler.unscale):
                with pytest.raises(TypeError, match=f"^{message}$"):
                    function(inputs)
        assert scaler.scale(one) == 8


def test_repr_has_the_class_and_the_scale():
    """The scale is that of the next step."""
    scaler = DynamicLossScaler(1024, 2, 3)
    scaler.adjust(False)
    assert repr(scaler) == "DynamicLossScaler(scale_value=512.0)"
    assert repr(StaticLossScaler(8)) == "StaticLossScaler(scale_value=8.0)"


@pytest.mark.clause("MINDSPORE-scale-value-attribute")
def test_scale_and_counter_of_a_dynamic_scaler_can_be_set():
    """With a counter beyond the window, the scale grows at the next finite step. `scale` and `unscale` use the new scale."""
    scaler = DynamicLossScaler(8, 2, 4)
    scaler.scale_value, scaler.counter = array(32), 7
    assert bits([scaler.scale_value, scaler.counter]) == bits([np.float32(32), np.int32(7)])
    scaler.adjust(True)
    assert state_of(scaler) == (64, 0)
    assert (scaler.scale(array(1)), scaler.unscale(array(1))) == (64, 1 / 64)


@pytest.mark.clause("MINDSPORE-static-fixed", "MINDSPORE-static-adjust-ignores", "MINDSPORE-adjust-returns")
def test_adjust_of_a_static_scaler_ignores_its_argument():
    """`adjust` returns False, and the scale is unchanged."""
    scaler = StaticLossScaler(8)
    for anything in (True, False, np.asarray(False), None, "x", 0, array([INF])):
        assert scaler.adjust(anything) is False
        assert scaler.scale_value == 8


@pytest.mark.clause("MINDSPORE-adjust", "MINDSPORE-adjust-returns", "MINDSPORE-dynamic-growth", "MINDSPORE-dynamic-backoff")
@pytest.mark.clause("MINDSPORE-dynamic-min-scale", "MINDSPORE-dynamic-skip-infinite-growth", "MINDSPORE-dynamic-division")
@pytest.mark.parametrize(("start", "factor", "window"), SETTINGS)
def test_the_scaler_equals_the_plain_loop_on_every_pattern(start, factor, window):
    """Scale and counter are equal bit for bit, and `adjust` always returns True."""

    def adjust(scaler, step):
        assert scaler.adjust(step == "F") is True

    loop = loops_mindspore.DynamicLossScaler(start, factor, window)
    for pattern, states in every_pattern(DynamicLossScaler(start, factor, window), adjust, state_of):
        assert states == states_of(loop, pattern, "scale", "counter"), pattern


@pytest.mark.clause("MINDSPORE-dynamic-min-scale", "MINDSPORE-scale-value-attribute", "STEP-resume")
def test_the_lower_bound_applies_to_backoffs_only():
    """A scale set or loaded as 0.25 is kept on a finite step, and becomes 1 at the next overflow."""
    saved, scaler = DynamicLossScaler(8, 2, 3), DynamicLossScaler(8, 2, 3)
    saved.scale_value = 0.25
    scaler.load_state_dict(saved.state_dict())
    scaler.adjust(True)
    assert scaler.scale_value == 0.25
    scaler.adjust(False)
    assert scaler.scale_value == 1


@pytest.mark.clause("MINDSPORE-adjust-argument")
def test_adjust_accepts_a_single_bool():
    """Python and NumPy bools and bool arrays of shape () are valid. The number 1 is not."""
    for flag in (True, np.True_, np.asarray(True), all_finite([array(1)])):
        scaler = DynamicLossScaler(8, 2, 2)
        assert scaler.adjust(flag) is True
        assert state_of(scaler) == (8, 1)
    with pytest.raises(TypeError, match="grads_finite must be a bool"):
        scaler.adjust(1)


@pytest.mark.clause("MINDSPORE-all-finite-flat", "MINDSPORE-all-finite-empty")
def test_all_finite_requires_a_flat_tuple_or_list_of_arrays():
    """Anything else raises a TypeError, and an empty tuple a ValueError."""
    for error, name, inputs, actual in (
        (TypeError, "inputs", (value for value in [array(1)]), "generator; for a dict, pass list(gradients.values())"),
        (TypeError, "inputs[1]", (array(1), None), "NoneType"),
        (ValueError, "inputs", (), "none"),
    ):
        with rejects(error, name, actual):
            all_finite(inputs)


def test_an_unknown_key_does_not_suggest_a_conversion():
    """`ampscale convert` writes the entries of MindSpore's checkpoints, which this class does not load."""
    with pytest.raises(ValueError, match=r"unknown \['scale'\]$"):
        DynamicLossScaler(8, 2, 3).load_state_dict({"scale": 8.0})
