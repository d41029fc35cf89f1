"""Fixture: the devices on which the tests of kernels run."""

import pytest


@pytest.fixture(params=["cpu", pytest.param("device", marks=pytest.mark.device)])
def default_device(request):
    """Create JAX arrays on the CPU, and again on an accelerator."""
    jax = pytest.importorskip("jax", reason="needs jax")
    if request.param == "device" and jax.default_backend() == "cpu":
        pytest.skip("needs an accelerator that JAX supports")
    with jax.default_device(jax.devices("cpu" if request.param == "cpu" else None)[0]):
        yield
