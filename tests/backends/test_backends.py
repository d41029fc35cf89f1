"""Backends: the same contents in each, the owner of an array, and the test vectors on every library."""

import importlib
import inspect

import array_api_strict
import numpy as np
import pytest
from backends import platforms
from libraries import on
from strategies import same
from vectors import argument, array, cases

import ampscale
from ampscale.backends import Backend, generic, get_backend
from ampscale.backends.numpy import backend as numpy
from ampscale.backends.protocol import CONTENTS


def module(name):
    """Return the backend called *name*. CuPy's runs on the host."""
    if name == "generic":
        return generic
    if name == "cupy":
        return platforms.host().backend
    pytest.importorskip(name, reason=f"needs {name}")
    return importlib.import_module(f"ampscale.backends.{name}.backend")


def parameters(function):
    """Return a function's parameters without annotations. Leave out self."""
    params = [param.replace(annotation=param.empty) for param in inspect.signature(function).parameters.values()]
    return [param for param in params if param.name != "self"]


@pytest.mark.clause("BACKENDS-same-contents")
@pytest.mark.parametrize("name", ["numpy", "cupy", "torch", "jax", "generic"])
def test_backends_have_the_same_contents_in_the_same_order(name):
    """Each backend has the contents and parameters of `Backend`, and defines no other public name."""
    backend = module(name)
    public = {item: value for item, value in vars(backend).items() if not item.startswith("_")}
    defined = [item for item, value in public.items() if item in CONTENTS or getattr(value, "__module__", "") == backend.__name__]
    assert defined == list(CONTENTS)
    assert name == backend.NAME
    for item in CONTENTS[1:]:
        assert parameters(public[item]) == parameters(getattr(Backend, item)), item


def test_get_backend_returns_the_owner():
    """NumPy owns its arrays and scalars, and trees without arrays belong to it. Other arrays belong to the generic backend."""
    for tree in (np.ones(1), np.float32(1), [None, {"w": np.ones(())}], None, []):
        assert get_backend(tree) is numpy
    assert get_backend([array_api_strict.ones(1)]) is generic
    assert generic.owns(array_api_strict.ones(1))
    assert not generic.owns([1.0])


@on("torch", "jax")
def test_get_backend_returns_the_backend_of_a_library(library):
    """Of the other backends, the generic one also claims the array; NumPy's does not."""
    array = library.array([1.0])
    backend = get_backend({"w": [None, array]})
    assert library.name == backend.NAME
    assert backend.namespace() is library.xp
    assert backend.devices()
    assert not numpy.owns(array)
    assert generic.owns(array)
    assert not backend.owns(np.ones(1))


@pytest.mark.clause("BACKENDS-no-conversion", "SCALING-mixed-rejected")
@on("torch", "jax")
def test_arrays_of_two_libraries_raise(library):
    """Both arrays are in one tree, or the second is the scale or *out*. The message states path, library and device of both."""
    other, numpy_array = library.array([1.0]), np.ones(1, np.float32)
    for call, paths in (
        (lambda: ampscale.all_finite({"w": [numpy_array, other]}), (r"tree\['w'\]\[0\]", r"tree\['w'\]\[1\]")),
        (lambda: ampscale.unscale(numpy_array, library.array(2.0)), ("tree", "scale")),
        (lambda: ampscale.unscale_and_check(numpy_array, 2.0, out=other), ("tree", "out")),
    ):
        message = rf"{paths[0]} from numpy on cpu; {paths[1]} from \S*{library.name}\S* on \S*(?i:cpu)"
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.clause("BACKENDS-bit-identical")
def test_vectors_hold_on_every_library(library):
    """The vectors are the test vectors of the chapter on backends."""
    functions = {"scale": ampscale.scale, "unscale": ampscale.unscale, "check": ampscale.unscale_and_check}
    failures = []
    for case in cases():
        if case["chapter"] == "backends" and case["input"]["dtype"] in library.dtypes:
            result = functions[case["kind"]](library.from_numpy(array(case["input"])), argument(case["scale"]))
            expected = array(case["output"])
            if case["kind"] == "check":
                expected = (expected, np.asarray(case["finite"]))
            if not same(library.to_numpy(result), expected):
                failures.append(case["id"])
    assert failures == []
