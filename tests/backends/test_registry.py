"""Backends that others bring: registered, or by installed packages; and what happens where one fails."""

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
def test_a_registered_backend_is_listed_and_owns_its_arrays(make_backend):
    """From then on, also where arrays of its kind were seen before; what it does not own stays with the others."""
    array = array_api_strict.ones(2)
    assert get_backend(array) is generic
    strict = make_backend(all_finite=lambda _: "asked")
    for other in (strict, *(make_backend(name, owns=lambda _: False) for name in "hfbgadce")):
        register_backend(other)
    assert ampscale.list_backends() == ("numpy", "cupy", "torch", "jax", *"abcdefgh", "strict", "generic")
    assert get_backend([None, {"w": array}]) is strict
    assert ampscale.all_finite(array) == "asked"
    assert get_backend(np.ones(2)) is numpy


@pytest.mark.usefixtures("known_backends")
@pytest.mark.clause("BACKENDS-third-party")
def test_a_registered_backend_may_know_networks(make_backend):
    """What it sees as a network is one for every step; nobody's is refused."""
    register_backend(make_backend(as_network=lambda value: "seen" if value == "mine" else None))
    assert network_of("mine") == "seen"
    with pytest.raises(TypeError, match=r"network must be .*, got 'yours' of type str"):
        network_of("yours")


@pytest.mark.usefixtures("known_backends")
@pytest.mark.parametrize("name", ["numpy", "torch", "generic", "strict"])
def test_a_name_is_given_once(make_backend, name):
    """A second backend of a name is refused, and changes nothing."""
    first = make_backend()
    register_backend(first)
    with pytest.raises(ValueError, match=f"a backend's NAME must be new, got '{name}'; there are numpy, .*, strict, generic"):
        register_backend(make_backend(name))
    assert get_backend(array_api_strict.ones(1)) is first


@pytest.mark.usefixtures("known_backends")
def test_a_backend_that_lacks_something_is_refused(make_backend):
    """Each of the contents must be there, and be a function; NAME a str."""
    for lacking in CONTENTS:
        wrong, without = make_backend(**{lacking: 3}), make_backend()
        delattr(without, lacking)
        for backend in (wrong, without):
            with pytest.raises(TypeError, match=rf"backend must have NAME, a str, and the functions .* lacks {lacking}$"):
                register_backend(backend)
    assert ampscale.list_backends() == ("numpy", "cupy", "torch", "jax", "generic")


def test_a_library_that_is_kept_out_is_not_there(known_backends, monkeypatch):
    """None in sys.modules is how Python is told not to import something; arrays of others do not care."""
    for name in ("cupy", "torch", "jax"):
        monkeypatch.setitem(sys.modules, name, None)
        known_backends._loaded.pop(name, None)
    known_backends._owners.clear()
    assert get_backend(array_api_strict.ones(1)) is generic
    assert why_not("torch") == "not installed"


# --- what installed packages bring, in fresh interpreters ---


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with two packages: one brings an array library and its backend, the other a backend that fails."""
    folder = tmp_path_factory.mktemp("installed")
    install(folder, "ampscale-pebbles", ["pebbles = ampscale_pebbles"], "pebbles.py", "ampscale_pebbles.py")
    return install(folder, "ampscale-quarry", ["quarry = ampscale_quarry"], "quarry.py", "ampscale_quarry.py")


QUESTIONS = """
import array_api_strict, json, numpy as np

def error(call, *arguments):
    try:
        return call(*arguments)
    except (RuntimeError, ValueError) as raised:
        return f"{raised} / {type(raised.__cause__).__name__}"

class Own:
    device, dtype, shape = "here", "float32", ()

    def __array_namespace__(self, *, api_version=None):
        return np

answers = {"backends": ampscale.list_backends()}
ampscale.unscale(np.ones(2), 2.0), ampscale.get_backend(Own())
answers["a wrong choice"] = error(ampscale.use_backend, "pebble")
answers["imported unasked"] = [name for name in sys.modules if "pebbles" in name or "quarry" in name]

import pebbles
heap = {"w": pebbles.asarray([3.0, 4.0])}
answers["owner"] = ampscale.get_backend(heap).__name__
answers["verbs"] = [ampscale.unscale_and_check(heap, 2.0)[0]["w"].values, ampscale.global_norm(heap).values]

import quarry
answers["used"] = [error(ampscale.all_finite, [quarry.Array()]) for _ in range(2)]
answers["chosen"] = error(ampscale.use_backend, "quarry")
answers["a wrong choice after a failure"] = error(ampscale.use_backend, "query")
answers["others"] = [ampscale.unscale(np.ones(1), 2.0).tolist(), ampscale.unscale(pebbles.asarray([1.0]), 2.0).values]
answers["default"] = ampscale.get_namespace().__name__
answers["nobody's"] = error(ampscale.unscale, array_api_strict.ones(1), 2.0)
ampscale.use_backend("pebbles")
made = ampscale.LossScaleRule().init().scale
answers["made"] = [ampscale.get_namespace().__name__, type(made).__module__, made.values]
print(json.dumps(answers))
"""


def prints(code, *folders, **environment):
    """The lines that *code* prints in a fresh interpreter."""
    done = python(f"import sys, ampscale\n{code}", *folders, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def answers(installed):
    """What one interpreter answers to the questions, in their order."""
    return json.loads(*prints(QUESTIONS, installed))


@pytest.mark.clause("BACKENDS-third-party", "BACKENDS-precedence", "BACKENDS-never-unasked")
def test_a_package_s_backend_is_one_of_the_backends(answers):
    """
    It is listed, in the order of the alphabet; its arrays find it, every verb is its own, and it can be chosen.

    It is not imported before its library: neither by the import of ampscale, nor by a list, nor by other arrays.
    """
    assert answers["backends"] == ["numpy", "cupy", "torch", "jax", "pebbles", "quarry", "generic"]
    assert "pebbles' of ampscale-pebbles 0.1: can be used" in answers["a wrong choice"]
    assert answers["imported unasked"] == []
    assert answers["owner"] == "ampscale_pebbles"
    assert answers["verbs"] == [[1.5, 2.0], 5.0]
    assert answers["made"] == ["pebbles", "pebbles", 65536.0]


FAILED = "the backend 'quarry' of ampscale-quarry 0.1 failed: ImportError: needs quarry 2, got 1.0"


@pytest.mark.clause("BACKENDS-failure-reported", "BACKENDS-wrong-value")
def test_a_failing_backend_is_reported_where_it_is_used_or_chosen(answers):
    """
    Each time, with the package and the reason; never the generic one instead, also for what is nobody's and may be its own.

    Arrays of ours, and of another package, are served beside it.
    """
    assert answers["used"] == [f"{FAILED} / ImportError"] * 2
    assert answers["nobody's"] == f"{FAILED} / ImportError"
    for name, line in (("quarry", answers["chosen"]), ("query", answers["a wrong choice after a failure"])):
        assert line.startswith(
            f"use_backend() must name a backend that can be used here, got '{name}'. There are 'numpy': can be"
        )
        assert f"; {FAILED.removeprefix('the backend ').replace(' failed', ': failed')}; 'generic': makes no arrays" in line
    assert answers["others"] == [[0.5], [0.5]]
    assert answers["default"] == "array_api_compat.numpy"


@pytest.mark.clause("BACKENDS-failure-reported")
def test_an_entry_point_that_is_no_backend_is_reported(tmp_path):
    """
    It must lead to a backend of its own name; and where two packages bring one name, none of them wins by chance.

    Neither the backends of ours nor their places in a list are taken; `ampscale doctor` tells of it. A name that is no
    top-level module's is not installed: looking for it imports nothing, and fails for nobody.
    """
    reasons = {
        "pebbles:Array": "TypeError: pebbles:Array must have NAME, a str, and the functions of a backend; <class",
        "pebbles:shells": "AttributeError: module 'pebbles' has no attribute 'shells'",
        "ampscale.backends.generic": "ValueError: the NAME of ampscale.backends.generic must be that of its entry point",
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
    found, listed, *wrong, twice = prints(code, tmp_path)
    for index, (line, reason) in enumerate(zip(wrong, reasons.values(), strict=True)):
        assert line.startswith(f"the backend 'wrong{index}' of ampscale-wrong 0.1 failed: {reason}")
    assert "one package must bring it, got ampscale-wrong 0.1, other-pebbles 0.1" in twice
    assert found == "ampscale.backends.numpy.backend array_api_compat.numpy"
    assert "There are 'numpy': can be used; 'cupy': " in listed
    assert "; 'no.such' of ampscale-impostor 0.1: not installed; " in listed
    assert listed.endswith("; 'generic': makes no arrays of its own")


@pytest.mark.slow
def test_torch_compile_may_be_the_first_to_ask():
    """A verb that is compiled before any array has found its backend is one graph."""
    pytest.importorskip("torch", reason="needs torch")
    code = """
import warnings
warnings.simplefilter("ignore")
import torch
halved = torch.compile(lambda tree: ampscale.unscale_and_check(tree, 2.0), fullgraph=True, backend="eager")
tree, finite = halved({"w": torch.ones(2)})
print(tree["w"].tolist(), finite.item(), ampscale.get_backend(tree).NAME)
"""
    assert prints(code) == ["[0.5, 0.5] True torch"]
