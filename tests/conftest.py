"""One deterministic Hypothesis profile, and the array libraries on which the core is run."""

import os

import array_api_strict
import libraries
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ampscale",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # a library is the same for all examples
)
settings.load_profile("ampscale")

os.environ.setdefault("JAX_ENABLE_X64", "1")  # before anybody imports JAX; a test of 32 bits switches it off for itself


@pytest.fixture(params=libraries.NAMES)
def library(request):
    """One array library after the other."""
    loaded = libraries.load(request.param)
    with loaded.quiet():
        yield loaded


@pytest.fixture
def accelerator(monkeypatch):
    """A namespace and a device whose arrays cannot be read on the host."""

    def refuse(array, *_args, **_kwargs):
        raise AssertionError(f"an array of shape {array.shape} was read on the host")

    for name in ("__bool__", "__int__", "__float__", "__complex__", "__array__", "__iter__"):
        monkeypatch.setattr(type(array_api_strict.asarray(0)), name, refuse, raising=False)
    return array_api_strict, array_api_strict.Device("device1")
