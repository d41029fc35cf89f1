"""Namespaces: the default, and the check that all arrays come from one library and one device."""

import array_api_strict
import numpy as np
import pytest

from ampscale.core import namespaces
from ampscale.core.namespaces import check_one_library, default_namespace, namespace_of, provide_default


def on(device):
    return array_api_strict.ones(1, device=array_api_strict.Device(device))


def test_last_provider_returns_the_default_namespace(monkeypatch):
    """It is called for a tree without arrays."""
    monkeypatch.setattr(namespaces, "_providers", [lambda: np])
    provide_default(lambda: array_api_strict)
    assert default_namespace() is array_api_strict
    assert namespace_of([None, {}]) is array_api_strict


def test_arrays_of_one_library_and_device_pass():
    """Any number of trees is accepted; None is not an array."""
    check_one_library(tree=[np.ones(1), None], out=np.float32(1))
    check_one_library(tree=[on("CPU_DEVICE"), on("CPU_DEVICE")], out={"w": on("CPU_DEVICE")})


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ({"tree": [np.ones(1)], "out": on("CPU_DEVICE")}, r"tree\[0\] from numpy on cpu; out from array_api_strict on"),
        (
            {"tree": [on("CPU_DEVICE"), on("device1")]},
            r"tree\[0\] from array_api_strict on .*CPU_DEVICE.*; tree\[1\] from array_api_strict on .*device1",
        ),
    ],
    ids=["libraries", "devices"],
)
def test_arrays_of_two_libraries_or_devices_are_rejected(trees, message):
    """The message locates each array."""
    with pytest.raises(TypeError, match=f"^arrays must come from one library and one device, got {message}"):
        check_one_library(**trees)
