"""Choice of a scaler by the dtype of the computation."""

import numpy as np
import pytest
from frameworks.steps import GradientDescent

import ampscale

NAMES = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.clause("CALLS-disabled")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
def test_only_float16_is_scaled(name):
    """The same loop runs for all dtypes: without a scale, an infinity is applied, nothing is stored, and no warning is issued."""
    scaler = ampscale.scaler_for(name, init_loss_scaling=8.0)
    optimizer = GradientDescent(np.float32([np.inf]))
    is_scaled = name == "float16"
    assert scaler.scale(np.float32(3.0)) == (24.0 if is_scaled else 3.0)
    assert scaler.step(optimizer) == (not is_scaled)
    scaler.update()
    assert bool(scaler.state_dict()) == is_scaled


@pytest.mark.clause("CALLS-disabled")
@pytest.mark.parametrize("name", NAMES)
def test_torch_dtypes_have_the_scaler_of_torch(name):
    """Keywords are passed to the constructor of this scaler."""
    torch = pytest.importorskip("torch", reason="needs torch")
    scaler = ampscale.scaler_for(getattr(torch, name), device="cpu", growth_interval=3)
    assert (type(scaler), scaler.is_enabled()) == (ampscale.torch.GradScaler, name == "float16")


def test_only_the_four_floating_point_dtypes_are_accepted():
    """The dtypes can be passed as scalar types or dtypes of NumPy."""
    assert ampscale.scaler_for(np.float16).is_enable()
    assert not ampscale.scaler_for(np.dtype("float32")).is_enable()
    for dtype in ("float8", np.int32, np.complex64, float, 16, None, [], np.zeros(2)):
        with pytest.raises(TypeError, match=r"dtype must be one of float16, .* got "):
            ampscale.scaler_for(dtype)


@pytest.mark.parametrize("keyword", ["enable", "enabled"])
def test_only_the_dtype_enables_a_scaler(keyword):
    with pytest.raises(TypeError, match=f"^{keyword} must be left out, since the dtype determines it, got True$"):
        ampscale.scaler_for("float16", **{keyword: True})
