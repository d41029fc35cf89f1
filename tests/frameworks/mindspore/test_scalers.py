"""`LossScaler`, `StaticLossScaler` and `DynamicLossScaler`, as their page has them."""

import inspect

import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.published import SETTINGS, TRACES, dynamic_loss_scaler, every_pattern
from frameworks.refusals import refused

from ampscale.frameworks.mindspore import DynamicLossScaler, LossScaler, StaticLossScaler, all_finite

INF, NAN = float("inf"), float("nan")
SCALERS = [lambda value: StaticLossScaler(value), lambda value: DynamicLossScaler(value, 2, 3)]
both_scalers = pytest.mark.parametrize("scaler_of", SCALERS, ids=["static", "dynamic"])


def stands(scaler):
    """All that a dynamic scaler carries from step to step."""
    return float(scaler.scale_value), int(scaler.counter)


# LossScaler


@pytest.mark.clause("MINDSPORE-scaler-abstract")
def test_a_loss_scaler_cannot_be_made():
    """`LossScaler` is abstract."""
    with pytest.raises(TypeError, match="abstract"):
        LossScaler()


@pytest.mark.clause("MINDSPORE-scaler-abstract")
@pytest.mark.parametrize("missing", ["scale", "unscale", "adjust"])
def test_an_heir_has_all_three_methods(missing):
    """An heir that lacks one cannot be made; one that has them all can."""
    methods = {name: lambda _, value: value for name in ("scale", "unscale", "adjust")}
    assert type("Heir", (LossScaler,), methods)().adjust(True) is True
    del methods[missing]
    with pytest.raises(TypeError, match=missing):
        type("Heir", (LossScaler,), methods)()


# scale and unscale


@pytest.mark.clause("MINDSPORE-scaler-scale", "MINDSPORE-scaler-unscale")
@both_scalers
@pytest.mark.parametrize(
    ("dtype", "value", "inputs", "scaled", "unscaled"),
    [
        ("float32", 3, [1, 5, 7], [3, 15, 21], [1 / 3, float.fromhex("0x1.aaaaaap+0"), 7 / 3]),
        ("float64", 3, [1, 5, 7], [3, 15, 21], [1 / 3, 5 / 3, 7 / 3]),
        ("float16", 3, [1, 5, 7], [3, 15, 21], [0.333251953125, 1.6669921875, 2.333984375]),
        ("float16", 2049, [1, 0, 2], [2048, 0, 4096], [0.00048804283142089844, 0, 0.0009760856628417969]),
        ("float16", 2.0**16, [0, 0.5, 2], [0, 32768, INF], [0, 2.0**-17, 2.0**-15]),
        ("float16", 2.0**25, [1024, INF, NAN], [INF, INF, NAN], [2.0**-15, INF, NAN]),
        (ml_dtypes.bfloat16, 257, [1, 3], [256, 772], [1 / 257, 3 / 257]),
        ("float32", 1, [1.5, -2], [1.5, -2], [1.5, -2]),
    ],
)
def test_scale_multiplies_and_unscale_divides(scaler_of, dtype, value, inputs, scaled, unscaled):
    """In float32 or wider, rounded once to the dtype of the input; a new array, and the input stays."""
    scaler, given = scaler_of(value), array(inputs, dtype)
    before = bits([given])
    up, down = scaler.scale(given), scaler.unscale(given)
    assert bits([up, down]) == bits([array(scaled, dtype), array(unscaled, dtype)])
    assert bits([given]) == before
    assert not np.shares_memory(up, given)
    assert not np.shares_memory(down, given)


@pytest.mark.clause("MINDSPORE-scaler-inputs")
@both_scalers
@pytest.mark.parametrize(
    ("inputs", "scaled", "unscaled"),
    [
        (array(3), array(12), array(0.75)),
        ((array(1), array([2.0])), (array(4), array([8.0])), (array(0.25), array([0.5]))),
        ([array(1)], [array(4)], [array(0.25)]),
        (((array(1),), array(2)), ((array(4),), array(8)), ((array(0.25),), array(0.5))),
        ({"w": array(1)}, {"w": array(4)}, {"w": array(0.25)}),
        ((), (), ()),
    ],
)
def test_a_loss_or_gradients_in_any_container_are_scaled(scaler_of, inputs, scaled, unscaled):
    """Arrays, tuples, lists, nested tuples, dicts and the empty tuple keep their structure."""
    scaler = scaler_of(4)
    assert scaler.scale(inputs) == scaled
    assert scaler.unscale(inputs) == unscaled
    assert type(scaler.unscale(inputs)) is type(unscaled)


@pytest.mark.clause("MINDSPORE-dynamic-growth", "MINDSPORE-scaler-scale")
def test_the_scale_of_the_step_is_the_one_after_the_last_adjust():
    """A growth is in force at once for the next loss."""
    scaler = DynamicLossScaler(4, 2, 1)
    scaler.adjust(True)
    assert scaler.scale(array(1)) == 8
    assert scaler.unscale(array(1)) == 0.125


# The constructors


@pytest.mark.clause("MINDSPORE-scale-value")
@both_scalers
@pytest.mark.parametrize("value", [1, 1.0, 8, 1024.5, np.float64(2.5), float(np.finfo(np.float32).max)])
def test_scale_value_is_a_number_from_one_up(scaler_of, value):
    """Ints and floats, np.float64 among them, up to the largest float32."""
    scaler = scaler_of(value)
    assert bits([scaler.scale_value]) == bits([np.float32(value)])


@pytest.mark.clause("MINDSPORE-scale-value")
@both_scalers
@pytest.mark.parametrize("value", [0.999999, 0.5, 0, -1, -INF, INF, NAN, 1e39])
def test_a_scale_value_out_of_range_is_refused(scaler_of, value):
    """Below 1, NaN, infinity and what float32 cannot hold are ValueErrors."""
    with refused(ValueError, "scale_value", repr(value)):
        scaler_of(value)


@pytest.mark.clause("MINDSPORE-scale-value")
@both_scalers
@pytest.mark.parametrize("value", [True, "1024", None, [8.0], np.float32(8), np.int32(8), array(8), array([8], "float64")])
def test_a_scale_value_of_another_type_is_refused(scaler_of, value):
    """Bools, strings, None, lists, arrays and other NumPy scalars are TypeErrors."""
    with refused(TypeError, "scale_value", repr(value)):
        scaler_of(value)


@pytest.mark.clause("MINDSPORE-scale-factor", "MINDSPORE-scale-window")
@pytest.mark.parametrize("name", ["scale_factor", "scale_window"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        *[(value, ValueError) for value in (0, -1, 2**31)],
        *[(value, TypeError) for value in (2.0, 2.5, True, "2", None, NAN, np.int32(2), array(2, "int32"))],
    ],
)
def test_factor_and_window_are_ints_from_one_up(name, value, error):
    """Zero, negatives and 2**31 are ValueErrors; floats, bools, NumPy integers, strings and None are TypeErrors."""
    arguments = {"scale_value": 8, "scale_factor": 2, "scale_window": 2}
    with refused(error, name, repr(value)):
        DynamicLossScaler(**{**arguments, name: value})
    assert stands(DynamicLossScaler(**{**arguments, name: 1})) == (8, 0)


@pytest.mark.clause("MINDSPORE-dynamic-signature")
def test_all_three_arguments_of_a_dynamic_scaler_are_required():
    """The documented names, in the documented order, without a default."""
    parameters = inspect.signature(DynamicLossScaler).parameters
    assert list(parameters) == ["scale_value", "scale_factor", "scale_window"]
    assert {parameter.default for parameter in parameters.values()} == {inspect.Parameter.empty}
    assert list(inspect.signature(StaticLossScaler).parameters) == ["scale_value"]


# adjust


@pytest.mark.clause("MINDSPORE-static-fixed", "MINDSPORE-static-adjust-ignores", "MINDSPORE-adjust-returns")
@pytest.mark.parametrize("anything", [True, False, np.asarray(False), None, "x", 0, array([INF])])
def test_a_static_scale_stays_and_its_adjust_ignores_everything(anything):
    """`adjust` returns False, whatever it is given."""
    scaler = StaticLossScaler(8)
    assert scaler.adjust(anything) is False
    assert scaler.scale_value == 8


@pytest.mark.clause("MINDSPORE-adjust", "MINDSPORE-dynamic-growth", "MINDSPORE-dynamic-backoff", "MINDSPORE-dynamic-floor")
@pytest.mark.parametrize(("start", "factor", "window", "pattern", "scales"), TRACES)
def test_the_published_traces_of_the_scaler(start, factor, window, pattern, scales):
    """Growth inside the window-th finite step in a row, a shrink at every overflow, never below 1; True every time."""
    scaler = DynamicLossScaler(start, factor, window)
    seen = [float(scaler.scale_value)]
    for step in pattern:
        assert scaler.adjust(step == "F") is True
        seen.append(float(scaler.scale_value))
    assert seen == scales


@pytest.mark.clause("MINDSPORE-dynamic-growth", "MINDSPORE-dynamic-backoff", "MINDSPORE-dynamic-floor", "MINDSPORE-dynamic-guard")
@pytest.mark.parametrize(("start", "factor", "window"), SETTINGS)
def test_the_scaler_is_the_plain_loop_on_every_pattern(start, factor, window):
    """All 2**12 patterns, scale and counter, bit for bit."""
    walk = every_pattern(DynamicLossScaler(start, factor, window), lambda scaler, step: scaler.adjust(step == "F"), stands)
    for pattern, seen in walk:
        assert seen == dynamic_loss_scaler(start, factor, window, pattern), pattern


@pytest.mark.clause("MINDSPORE-dynamic-division")
def test_the_scaler_shrinks_by_a_true_division():
    """10 by 3 in float32, which the reciprocal of 3 would miss by one bit."""
    scaler = DynamicLossScaler(10, 3, 1)
    scaler.adjust(False)
    assert float(scaler.scale_value).hex() == "0x1.aaaaaa0000000p+1"


@pytest.mark.clause("MINDSPORE-dynamic-guard")
def test_a_growth_beyond_float32_keeps_the_scale_and_restarts_the_count():
    """2**127 stays, and the next attempt is a whole window later."""
    scaler = DynamicLossScaler(2.0**127, 2, 3)
    seen = []
    for _ in range(4):
        scaler.adjust(True)
        seen.append(stands(scaler))
    assert seen == [(2.0**127, 1), (2.0**127, 2), (2.0**127, 0), (2.0**127, 1)]


@pytest.mark.clause("MINDSPORE-dynamic-floor", "MINDSPORE-scale-value-attribute")
def test_the_floor_binds_on_overflow_only():
    """A scale set to 0.25 stays on a finite step, and becomes 1 at the next overflow."""
    scaler = DynamicLossScaler(8, 2, 3)
    scaler.scale_value = 0.25
    scaler.adjust(True)
    assert scaler.scale_value == 0.25
    scaler.adjust(False)
    assert scaler.scale_value == 1


@pytest.mark.clause("MINDSPORE-adjust-argument", "MINDSPORE-adjust-returns")
@pytest.mark.parametrize("flag", [True, np.True_, np.asarray(True), all_finite([array(1)])])
def test_adjust_takes_a_bool_array_of_shape_empty_and_bools(flag):
    """What `all_finite` returns, a NumPy bool and a Python bool all mean the same."""
    scaler = DynamicLossScaler(8, 2, 2)
    assert scaler.adjust(flag) is True
    assert stands(scaler) == (8, 1)


@pytest.mark.clause("MINDSPORE-adjust-argument")
@pytest.mark.parametrize(
    ("flag", "error", "came"),
    [
        (1, TypeError, "1"),
        (None, TypeError, "None"),
        ("True", TypeError, "True"),
        ([True], TypeError, "[True]"),
        (np.asarray(1, "int32"), TypeError, "int32"),
        (np.float32(1), TypeError, "float32"),
        (np.asarray([True]), ValueError, "(1,)"),
        (np.asarray([True, False]), ValueError, "(2,)"),
    ],
)
def test_adjust_refuses_what_is_no_single_bool(flag, error, came):
    """Another type or dtype is a TypeError, another shape a ValueError; the scaler stays as it was."""
    scaler = DynamicLossScaler(8, 2, 2)
    scaler.adjust(True)
    with refused(error, "grads_finite", came):
        scaler.adjust(flag)
    assert stands(scaler) == (8, 1)
