"""Deterministic Hypothesis profile, and fixtures for the array libraries that the tests run on."""

import os

import libraries
import pytest
from hypothesis import HealthCheck, settings

from ampscale.backends.cpu import fused

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


@pytest.fixture(scope="module", params=["library", "numba"])
def each_kernel(request):
    """Run the tests of a module with the operations of the array library ("library"), and with compiled kernels ("numba")."""
    if request.param == "numba":
        if fused.kernel_choice_host().module is None:
            pytest.skip("needs numba")
        yield request.param
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fused, "kernel_choice_host", lambda: fused.KernelChoice(None, "this test"))
            yield request.param
