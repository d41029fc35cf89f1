"""Namespaces: the default, and the check that all arrays come from one library and one device."""

from collections import namedtuple

import array_api_strict
import numpy as np
import pytest

from ampscale.core import namespaces
from ampscale.core.namespaces import check_one_library, default_namespace, namespace_of, provide_default


def test_last_provider_returns_the_default_namespace(monkeypatch):
    """The last provider is called for a tree without arrays."""
    monkeypatch.setattr(namespaces, "_providers", [lambda: np])
    provide_default(lambda: array_api_strict)
    assert default_namespace() is array_api_strict
    assert namespace_of([None, {}]) is array_api_strict


def test_arrays_may_be_distributed_over_the_same_devices_in_several_ways(monkeypatch):
    """The `spec` of a JAX sharding describes the distribution, and its `device_set` contains the devices."""
    Sharding = namedtuple("Sharding", ["spec", "device_set"])
    tree = [array_api_strict.zeros(()), array_api_strict.ones(())]
    monkeypatch.setattr("array_api_compat.device", lambda array: Sharding(int(array), {"cpu:0", "cpu:1"}))
    check_one_library(tree=tree)
    monkeypatch.setattr("array_api_compat.device", lambda array: Sharding(int(array), {f"cpu:{int(array)}"}))
    with pytest.raises(TypeError, match=r"^arrays must come from one library and one device, got tree\[0\] from"):
        check_one_library(tree=tree)


def test_error_lists_at_most_eight_arrays_of_each_location():
    tree = [*[np.ones(1)] * 10, array_api_strict.ones(1)]
    with pytest.raises(
        TypeError, match=r"tree\[7\] from numpy on cpu; 2 more from numpy on cpu; tree\[10\] from array_api_strict on"
    ):
        check_one_library(tree=tree)


def test_error_for_a_state_names_the_call_that_creates_one_of_the_right_library():
    with pytest.raises(TypeError, match=r"create the state of the scaler with rule.init\(like=array\)$"):
        check_one_library(state=[np.ones(1)], finite=array_api_strict.ones(1))
