"""Deterministic Hypothesis profile, and fixtures for the array libraries that the tests run on."""

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
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # the fixture `library` has no state that examples could change
)
settings.load_profile("ampscale")

os.environ.setdefault("JAX_ENABLE_X64", "1")  # before JAX is imported; tests of 32-bit mode disable it locally


@pytest.fixture(params=libraries.NAMES)
def library(request):
    """Run the test once for each array library."""
    loaded = libraries.load(request.param)
    with loaded.quiet():
        yield loaded


@pytest.fixture
def accelerator(monkeypatch):
    """Return a namespace and a device whose arrays raise an error if they are copied to the host."""

    def refuse(array, *_args, **_kwargs):
        raise AssertionError(f"an array of shape {array.shape} was copied to the host")

    for name in ("__bool__", "__int__", "__float__", "__complex__", "__array__", "__iter__"):
        monkeypatch.setattr(type(array_api_strict.asarray(0)), name, refuse, raising=False)
    return array_api_strict, array_api_strict.Device("device1")
