"""The backends: the same furniture in each, the right one for an array, and every fast path equal to its definition."""

import ast
import importlib
import inspect
from importlib.util import find_spec
from pathlib import Path

import array_api_strict
import numpy as np
import pytest
from libraries import on
from strategies import same
from vectors import argument, array, cases

import ampscale
from ampscale.backends import Backend, backend_of, generic, protocol
from ampscale.backends.numpy import backend as numpy
from ampscale.core import norms, overflow, scaling

EVERY_BACKEND = pytest.mark.parametrize("name", ["numpy", "cupy", "torch", "jax", "generic"])
FURNITURE = [*Backend.__annotations__, *(name for name in vars(Backend) if not name.startswith("_"))]
VECTORS = [case for case in cases() if case["chapter"] == "backends"]
ROOMS = {room.__name__.rpartition(".")[2]: room for room in (scaling, overflow, norms)}


def source(module):
    """The statements of a module's file."""
    return ast.parse(Path(module if isinstance(module, Path) else inspect.getsourcefile(module)).read_text("utf-8")).body


def backend_source(name):
    """The statements of a backend's file: not every library is installed, and the file can be read without it."""
    folder = Path(inspect.getsourcefile(generic)).parent
    return source(folder / "generic.py" if name == "generic" else folder / name / "backend.py")


def defined(statements):
    """What each public name of a file stands for, in order: a function, a class or an expression. Imports are no definitions."""
    found = {}
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(target): node.value for target in targets}
    return {name: node for name, node in found.items() if not name.startswith("_")}


def signature(node):
    """The parameters as written, without annotations; what is keyword-only is an offer to other modules."""
    if isinstance(node, ast.Attribute):  # `scale = scaling.scale`
        node = defined(source(ROOMS[ast.unparse(node.value)]))[node.attr]
    for parameter in (*node.args.posonlyargs, *node.args.args, node.args.vararg):
        if parameter:
            parameter.annotation = None
    node.args.kwonlyargs, node.args.kw_defaults = [], []
    return ast.unparse(node.args)


def wanted_signatures():
    """Those of the protocol's functions, for a module: without self."""
    (declared,) = (node for node in source(protocol) if isinstance(node, ast.ClassDef))
    return {
        name: signature(node).removeprefix("self, ").removeprefix("self") for name, node in defined(declared.body).items() if node
    }


@pytest.mark.clause("BACKENDS-same-contents")
@EVERY_BACKEND
def test_all_backends_have_the_same_furniture_in_the_same_order(name):
    """
    Each module defines what the protocol lists, in its order, and no other public name; its NAME is its own.

    The parameters and their defaults are the same, in the file, whether its library is installed or not.
    """
    found = defined(backend_source(name))
    assert list(found) == FURNITURE
    assert ast.literal_eval(found["NAME"]) == name
    assert {each: signature(found[each]) for each in FURNITURE[1:]} == wanted_signatures()


@pytest.mark.clause("BACKENDS-same-contents")
@EVERY_BACKEND
def test_all_backends_have_the_same_signatures_at_run_time(name):
    """What a caller finds is what the file says, decorators and all."""
    if name != "generic" and find_spec(name) is None:
        pytest.skip(f"needs {name}")
    backend = generic if name == "generic" else importlib.import_module(f"ampscale.backends.{name}.backend")
    for each in FURNITURE[1:]:
        wanted = list(inspect.signature(getattr(Backend, each)).parameters.values())[1:]
        found = inspect.signature(getattr(backend, each)).parameters.values()
        found = [parameter for parameter in found if parameter.kind is not parameter.KEYWORD_ONLY]
        assert [(one.name, one.kind, one.default) for one in found] == [(one.name, one.kind, one.default) for one in wanted]


def test_backends_are_listed_by_name():
    """Those for particular libraries come first, and the generic one last."""
    assert ampscale.backends() == ("numpy", "cupy", "torch", "jax", "generic")


def test_an_array_finds_its_backend():
    """NumPy's arrays and scalars are NumPy's, as is a tree of nothing; other arrays are anybody's."""
    assert [backend_of(tree) for tree in (np.ones(1), np.float32(1), [None, {"w": np.ones(())}], None, [])] == [numpy] * 5
    assert backend_of([array_api_strict.ones(1)]) is generic
    assert numpy.owns(np.float16(1))
    assert not numpy.owns(array_api_strict.ones(1))
    assert generic.owns(array_api_strict.ones(1))
    assert not generic.owns([1.0])


@on("torch", "jax")
def test_an_array_of_a_library_finds_its_own_backend(library):
    """And no other backend owns it, but the generic one, which owns all."""
    array = library.array([1.0])
    backend = backend_of({"w": [None, array]})
    assert library.name == backend.NAME
    assert backend.namespace() is library.xp
    assert backend.devices()
    assert not numpy.owns(array)
    assert generic.owns(array)
    assert not backend.owns(np.ones(1))


@pytest.mark.clause("BACKENDS-no-conversion", "SCALING-mixed-refused")
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
