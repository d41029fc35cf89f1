"""The backends: the same furniture in each, the right one for an array, and every fast path equal to its definition."""

import importlib
import inspect

import array_api_strict
import numpy as np
import pytest
from backends import places
from libraries import on
from strategies import same
from vectors import argument, array, cases

import ampscale
from ampscale.backends import Backend, generic, get_backend
from ampscale.backends.numpy import backend as numpy
from ampscale.backends.protocol import CONTENTS

EVERY_BACKEND = pytest.mark.parametrize("name", ["numpy", "cupy", "torch", "jax", "generic"])
VECTORS = [case for case in cases() if case["chapter"] == "backends"]


def module(name):
    """A backend; CuPy's on the host."""
    if name == "generic":
        return generic
    if name == "cupy":
        return places.host().backend
    pytest.importorskip(name, reason=f"needs {name}")
    return importlib.import_module(f"ampscale.backends.{name}.backend")


def parameters(function):
    """Without self and annotations; what is keyword-only is an offer to other modules."""
    found = [each.replace(annotation=each.empty) for each in inspect.signature(function).parameters.values()]
    return [each for each in found if each.name != "self" and each.kind is not each.KEYWORD_ONLY]


@pytest.mark.clause("BACKENDS-same-contents")
@EVERY_BACKEND
def test_all_backends_have_the_same_furniture_in_the_same_order(name):
    """Each has what the protocol lists, in its order and with its parameters, and no other public name; its NAME is its own."""
    backend = module(name)
    contents = {each: value for each, value in vars(backend).items() if not each.startswith("_")}
    own = [each for each, value in contents.items() if each in CONTENTS or getattr(value, "__module__", "") == backend.__name__]
    assert own == list(CONTENTS)
    assert name == backend.NAME
    for each in CONTENTS[1:]:
        assert parameters(contents[each]) == parameters(getattr(Backend, each)), each


def test_an_array_finds_its_backend():
    """NumPy's arrays and scalars are NumPy's, as is a tree of nothing; other arrays are anybody's."""
    assert [get_backend(tree) for tree in (np.ones(1), np.float32(1), [None, {"w": np.ones(())}], None, [])] == [numpy] * 5
    assert get_backend([array_api_strict.ones(1)]) is generic
    assert numpy.owns(np.float16(1))
    assert not numpy.owns(array_api_strict.ones(1))
    assert generic.owns(array_api_strict.ones(1))
    assert not generic.owns([1.0])


@on("torch", "jax")
def test_an_array_of_a_library_finds_its_own_backend(library):
    """And no other backend owns it, but the generic one, which owns all."""
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
def test_arrays_of_two_libraries_are_refused(library):
    """In one tree, as the scale, and as the place for the result; the message names each, and where it lies."""
    theirs, ours = library.array([1.0]), np.ones(1, np.float32)
    for call, paths in (
        (lambda: ampscale.all_finite({"w": [ours, theirs]}), (r"tree\['w'\]\[0\]", r"tree\['w'\]\[1\]")),
        (lambda: ampscale.unscale(ours, library.array(2.0)), ("tree", "scale")),
        (lambda: ampscale.unscale_and_check(ours, 2.0, out=theirs), ("tree", "out")),
    ):
        with pytest.raises(TypeError, match=rf"{paths[0]} is numpy on cpu; {paths[1]} is \S*{library.name}\S* on \S*cpu"):
            call()


@pytest.mark.clause("BACKENDS-bit-identical")
def test_the_vectors_hold_on_every_library(library):
    """What a vector of this chapter says does not depend on whose the arrays are."""
    verbs = {"scale": ampscale.scale, "unscale": ampscale.unscale, "check": ampscale.unscale_and_check}
    broken = []
    for case in VECTORS:
        if case["input"]["dtype"] in library.dtypes:
            result = verbs[case["kind"]](library.from_numpy(array(case["input"])), argument(case["scale"]))
            wanted = array(case["output"])
            wanted = (wanted, np.asarray(case["finite"])) if case["kind"] == "check" else wanted
            broken += [] if same(library.to_numpy(result), wanted) else [case["id"]]
    assert broken == []
