"""Third-party backends: registered ones, those of installed packages, and those that fail to load."""

import json
import sys

import array_api_strict
import numpy as np
import pytest
from backends.third_party.wheels import install, python

import ampscale
from ampscale.backends import generic, get_backend, network_of, register_backend
from ampscale.backends.numpy import backend as numpy
from ampscale.backends.protocol import CONTENTS
from ampscale.backends.registry import why_not


@pytest.mark.usefixtures("known_backends")
@pytest.mark.clause("BACKENDS-third-party")
def test_registered_backends_are_listed_and_own_their_arrays(make_backend):
    """They are listed by name, and also own arrays that had another owner before. All other arrays keep their owners."""
    array = array_api_strict.ones(2)
    assert get_backend(array) is generic
    strict = make_backend(all_finite=lambda _: "called")
    for other in (strict, *(make_backend(name, owns=lambda _: False) for name in "hfbgadce")):
        register_backend(other)
    assert ampscale.list_backends() == ("numpy", "cupy", "torch", "jax", *"abcdefgh", "strict", "generic")
    assert get_backend([None, {"w": array}]) is strict
    assert ampscale.all_finite(array) == "called"
    assert get_backend(np.ones(2)) is numpy


@pytest.mark.usefixtures("known_backends")
@pytest.mark.clause("BACKENDS-third-party")
def test_registered_backends_can_provide_networks(make_backend):
    """A value that no backend accepts raises a TypeError, which has a remedy for a function."""
    register_backend(make_backend(as_network=lambda value: "network" if value == "mine" else None))
    assert network_of("mine") == "network"
    with pytest.raises(TypeError, match=r"network must be a Network \(not its parameters\), .*, got 'yours' of type str$"):
        network_of("yours")
    with pytest.raises(TypeError, match=r"of type function; pass ampscale.Network\(function, params\)$"):
        network_of(lambda params: params)


@pytest.mark.usefixtures("known_backends")
@pytest.mark.parametrize("name", ["numpy", "torch", "generic", "strict"])
def test_names_must_be_unique(make_backend, name):
    """A second backend of the same name is rejected, and the registry is unchanged."""
    first = make_backend()
    register_backend(first)
    with pytest.raises(ValueError, match=f"NAME must not be one of numpy, .*, strict, generic, got '{name}'"):
        register_backend(make_backend(name))
    assert get_backend(array_api_strict.ones(1)) is first


@pytest.mark.usefixtures("known_backends")
def test_incomplete_backends_are_rejected(make_backend):
    """NAME must be a str, and everything else a function. A rejected backend is not listed."""
    for item in CONTENTS:
        invalid, incomplete = make_backend(**{item: 3}), make_backend()
        delattr(incomplete, item)
        for backend in (invalid, incomplete):
            with pytest.raises(TypeError, match=rf"backend must have a str NAME and the functions .* lacks {item}$"):
                register_backend(backend)
    assert ampscale.list_backends() == ("numpy", "cupy", "torch", "jax", "generic")


def test_libraries_blocked_in_sys_modules_count_as_not_installed(known_backends, monkeypatch):
    """None in sys.modules prevents an import. Arrays of other libraries are not affected."""
    for name in ("cupy", "torch", "jax"):
        monkeypatch.setitem(sys.modules, name, None)
        known_backends._loaded.pop(name, None)
    known_backends._owners.clear()
    assert get_backend(array_api_strict.ones(1)) is generic
    assert why_not("torch") == "not installed"


# --- installed packages, in new interpreters ---


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder with two packages: an array library with a backend, and one whose backend fails to load."""
    folder = tmp_path_factory.mktemp("installed")
    install(folder, "ampscale-pebbles", ["pebbles = ampscale_pebbles"], "pebbles.py", "ampscale_pebbles.py")
    return install(folder, "ampscale-quarry", ["quarry = ampscale_quarry"], "quarry.py", "ampscale_quarry.py")


CODE = """
import array_api_strict, json, numpy as np

def error(call, *arguments):
    try:
        return call(*arguments)
    except (RuntimeError, ValueError) as raised:
        return f"{raised} / {type(raised.__cause__).__name__}"

class UnownedArray:
    device, dtype, shape = "here", "float32", ()

    def __array_namespace__(self, *, api_version=None):
        return np

answers = {"backends": ampscale.list_backends()}
ampscale.unscale(np.ones(2), 2.0), ampscale.get_backend(UnownedArray())
answers["unknown name"] = error(ampscale.use_backend, "pebble")
answers["imported"] = [name for name in sys.modules if "pebbles" in name or "quarry" in name]

import pebbles
tree = {"w": pebbles.asarray([3.0, 4.0])}
answers["owner"] = ampscale.get_backend(tree).__name__
answers["functions"] = [ampscale.unscale_and_check(tree, 2.0)[0]["w"].values, ampscale.global_norm(tree).values]

import quarry
answers["used"] = [error(ampscale.all_finite, [quarry.Array()]) for _ in range(2)]
answers["chosen"] = error(ampscale.use_backend, "quarry")
answers["unknown name after failure"] = error(ampscale.use_backend, "query")
answers["other arrays"] = [ampscale.unscale(np.ones(1), 2.0).tolist(), ampscale.unscale(pebbles.asarray([1.0]), 2.0).values]
answers["default"] = ampscale.get_namespace().__name__
answers["unowned array"] = error(ampscale.unscale, array_api_strict.ones(1), 2.0)
ampscale.use_backend("pebbles")
scale = ampscale.LossScaleRule().init().scale
answers["created"] = [ampscale.get_namespace().__name__, type(scale).__module__, scale.values]
print(json.dumps(answers))
"""


def printed_lines(code, *folders, **environment):
    """Return the lines that *code* prints in a new interpreter."""
    completed = python(f"import sys, ampscale\n{code}", *folders, **environment)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()


@pytest.fixture(scope="module")
def answers(installed):
    return json.loads(*printed_lines(CODE, installed))


@pytest.mark.clause("BACKENDS-third-party", "BACKENDS-precedence", "BACKENDS-never-unasked")
def test_backends_of_packages_are_listed_and_own_their_arrays(answers):
    """These backends are loaded for their own arrays or by name, not by `list_backends`, other arrays or unknown names."""
    assert answers["backends"] == ["numpy", "cupy", "torch", "jax", "pebbles", "quarry", "generic"]
    assert "pebbles' of ampscale-pebbles 0.1: can be used" in answers["unknown name"]
    assert answers["imported"] == []
    assert answers["owner"] == "ampscale_pebbles"
    assert answers["functions"] == [[1.5, 2.0], 5.0]
    assert answers["created"] == ["pebbles", "pebbles", 65536.0]


REASON = "failed: ImportError: needs quarry 2, got 1.0"
FAILURE = f"the backend 'quarry' of ampscale-quarry 0.1 {REASON}"


@pytest.mark.clause("BACKENDS-failure-reported", "BACKENDS-wrong-value")
def test_load_failures_are_raised_on_every_use(answers):
    """
    Errors name the package and the reason. Calls with arrays that no backend owns raise them too.

    Arrays of other backends and the default backend are not affected.
    """
    assert answers["used"] == [f"{FAILURE} / ImportError"] * 2
    assert answers["unowned array"] == f"{FAILURE} / ImportError"
    for name, line in (("quarry", answers["chosen"]), ("query", answers["unknown name after failure"])):
        assert line.startswith(f"use_backend() must name a backend that can be used, got '{name}'. Backends: 'numpy': can be")
        assert f"; 'quarry' of ampscale-quarry 0.1: {REASON}; 'generic': creates no arrays" in line
    assert answers["other arrays"] == [[0.5], [0.5]]
    assert answers["default"] == "array_api_compat.numpy"


@pytest.mark.clause("BACKENDS-failure-reported")
def test_invalid_entry_points_raise(tmp_path):
    """
    An entry point must refer to a backend of its own name, and two packages must not provide the same name.

    Built-in backends cannot be replaced. A name that is not a top-level module is listed as not installed,
    without importing anything.
    """
    reasons = {
        "pebbles:Array": "TypeError: pebbles:Array must have a str NAME and the functions of a backend; <class",
        "pebbles:shells": "AttributeError: module 'pebbles' has no attribute 'shells'",
        "ampscale.backends.generic": "ValueError: NAME of ampscale.backends.generic must be 'wrong2', like its entry point, got",
    }
    points = [f"wrong{index} = {point}" for index, point in enumerate(reasons)]
    install(tmp_path, "ampscale-wrong", [*points, "twice = ampscale_pebbles"], "pebbles.py", "ampscale_pebbles.py")
    install(tmp_path, "other-pebbles", ["twice = ampscale_pebbles"])
    install(tmp_path, "ampscale-impostor", ["numpy = impostor", "generic = impostor", "no.such = nothing"])
    code = """
import numpy as np
from ampscale.backends import get_backend, registry, use_backend
print(get_backend(np.ones(1)).__name__, ampscale.get_namespace().__name__)
for call, name in ((use_backend, "x"), *((registry.load, name) for name in ("wrong0", "wrong1", "wrong2", "twice"))):
    try:
        call(name)
    except (RuntimeError, ValueError) as error:
        print(error)
"""
    owner, listed, *failures, twice = printed_lines(code, tmp_path)
    for index, (line, reason) in enumerate(zip(failures, reasons.values(), strict=True)):
        assert line.startswith(f"the backend 'wrong{index}' of ampscale-wrong 0.1 failed: {reason}")
    assert "exactly one installed package must declare a backend 'twice', got ampscale-wrong 0.1, other-pebbles 0.1" in twice
    assert owner == "ampscale.backends.numpy.backend array_api_compat.numpy"
    assert "Backends: 'numpy': can be used; 'cupy': " in listed
    assert "; 'no.such' of ampscale-impostor 0.1: not installed; " in listed
    assert listed.endswith("; 'generic': creates no arrays")


@pytest.mark.slow
def test_torch_compile_can_be_the_first_to_look_up_a_backend():
    """A function that is compiled before any backend lookup is one graph."""
    pytest.importorskip("torch", reason="needs torch")
    code = """
import warnings
warnings.simplefilter("ignore")
import torch
halved = torch.compile(lambda tree: ampscale.unscale_and_check(tree, 2.0), fullgraph=True, backend="eager")
tree, finite = halved({"w": torch.ones(2)})
print(tree["w"].tolist(), finite.item(), ampscale.get_backend(tree).NAME)
"""
    assert printed_lines(code) == ["[0.5, 0.5] True torch"]
