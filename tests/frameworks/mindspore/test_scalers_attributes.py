"""`scale_value` and `counter` of the scalers: read, and set as from a checkpoint."""

import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.refusals import refused

from ampscale.frameworks.mindspore import DynamicLossScaler, StaticLossScaler

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("MINDSPORE-scale-value-attribute")
@pytest.mark.parametrize("scaler_of", [StaticLossScaler, lambda value: DynamicLossScaler(value, 2, 3)])
def test_scale_value_is_a_float32_array_of_its_own(scaler_of):
    """Shape (), rounded to float32; writing into it moves nothing, and a later step does not move it."""
    scaler = scaler_of(16777217)
    value = scaler.scale_value
    assert bits([value]) == bits([np.float32(16777216)])
    scaler.adjust(False)
    assert value == 16777216
    value[...] = 3
    assert scaler.scale_value in (16777216, 8388608)


@pytest.mark.clause("MINDSPORE-scale-value-attribute")
def test_scale_and_counter_of_a_dynamic_scaler_can_be_set():
    """As from a checkpoint; a counter past the window grows at the next finite step."""
    scaler = DynamicLossScaler(8, 2, 4)
    scaler.scale_value, scaler.counter = array(32), 7
    assert bits([scaler.scale_value, scaler.counter]) == bits([np.float32(32), np.int32(7)])
    scaler.adjust(True)
    assert (scaler.scale_value, scaler.counter) == (64, 0)


@pytest.mark.clause("MINDSPORE-scale-value-attribute")
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *[("scale_value", value, ValueError) for value in (0.0, -1.0, NAN, INF, 1e39, 1e-50, array([1, 2]))],
        *[("scale_value", value, TypeError) for value in (True, "8", None, array(8, "float16"))],
        *[("counter", value, error) for value, error in ((-1, ValueError), (2**31, ValueError), (1.0, TypeError))],
    ],
)
def test_a_wrong_scale_or_counter_is_not_set(name, value, error):
    """NaN, infinity, zero, negatives, other shapes and other types are refused, and nothing has changed."""
    scaler = DynamicLossScaler(8, 2, 4)
    with refused(error, name, ""):
        setattr(scaler, name, value)
    assert (scaler.scale_value, scaler.counter) == (8, 0)
