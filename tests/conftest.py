"""One deterministic Hypothesis profile, and the array libraries on which the core is run."""

import array_api_compat.numpy
import array_api_strict
import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("ampscale", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("ampscale")


@pytest.fixture(params=[array_api_compat.numpy, array_api_strict], ids=["numpy", "strict"])
def xp(request):
    """An Array API namespace; the strict one has no 16-bit floats and nothing beyond the standard."""
    with np.errstate(all="ignore" if request.param is array_api_strict else None):  # it stands on NumPy, which warns
        yield request.param


@pytest.fixture
def accelerator(monkeypatch):
    """A namespace and a device whose arrays cannot be read on the host."""

    def refuse(array, *_args, **_kwargs):
        raise AssertionError(f"an array of shape {array.shape} was read on the host")

    for name in ("__bool__", "__int__", "__float__", "__complex__", "__array__", "__iter__"):
        monkeypatch.setattr(type(array_api_strict.asarray(0)), name, refuse, raising=False)
    return array_api_strict, array_api_strict.Device("device1")
