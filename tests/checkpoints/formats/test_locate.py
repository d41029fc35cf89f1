"""A scaler is found in a whole training checkpoint by its keys, or by a path."""

from collections import OrderedDict

import pytest

from ampscale import checkpoints

SCALER = {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3}
OTHER = {**SCALER, "scale": 16.0}


def at(mapping, **how):
    """Where torch's scaler was found, and its scale."""
    found = checkpoints.load("torch", mapping, **how)
    return found.at, float(found.state.scale)


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        (SCALER, ""),
        ({"scaler": SCALER}, "scaler"),
        ({"model": {"weight": [1.0]}, "optimizer": [{"x": 1}, {"amp": (0, OrderedDict(SCALER))}]}, "optimizer.1.amp.1"),
        ({f"scaler.{key}": value for key, value in SCALER.items()} | {"model.weight": 1}, "scaler"),
        ({f"run.amp.{key}": value for key, value in SCALER.items()} | {"run.step": 1}, "run.amp"),
        ({7: {"scaler": SCALER}}, "7.scaler"),
        ({"a.b": SCALER}, "a.b"),
    ],
)
def test_the_only_place_that_fits_is_taken_and_told(mapping, path):
    """In mappings, lists and tuples, and under keys that begin alike; the same path leads there again."""
    assert at(mapping) == (path, 8.0)
    assert at(mapping, at=path) == (path, 8.0)


def test_several_places_are_listed():
    """No one of them is taken without being named."""
    mapping = {"one": SCALER, "more": [OTHER]}
    with pytest.raises(ValueError, match=r"several places hold a state of torch; say which: \['more.0', 'one'\]"):
        at(mapping)
    assert at(mapping, at="more.0") == ("more.0", 16.0)
    assert at(mapping, at="one") == ("one", 8.0)


def test_the_top_is_taken_first():
    """A state that holds another one somewhere inside is a state."""
    found = checkpoints.load("mindspore", {"scale_value": 8.0, "counter": 0, "inner": {"scale_value": 4.0, "counter": 0}})
    assert (found.at, float(found.state.scale), found.ignored) == ("", 8.0, ("inner",))


def test_an_object_is_searched_once():
    """One in two places is one state, to which both paths lead; and a mapping that holds itself is not followed without end."""
    assert at({"one": SCALER, "two": SCALER})[1] == 8.0
    assert at({"one": SCALER, "two": SCALER}, at="two") == ("two", 8.0)
    mapping = {"scaler": SCALER}
    mapping["self"] = mapping
    mapping["list"] = [mapping]
    assert at(mapping) == ("scaler", 8.0)


@pytest.mark.parametrize(
    ("mapping", "path", "message"),
    [
        ({"a": {"b": 1}}, "c", r"there must be a mapping at 'c'; there are some at \['a'\]"),
        ({"a": {"b": 1}}, "a.b", "there must be a mapping at 'a.b'"),
        ({"a": [SCALER]}, "a", "there must be a mapping at 'a'"),
        ({"a": [SCALER]}, "a.1", "there must be a mapping at 'a.1'"),
        ({"a": {"b": 1}}, "a", r"no state of torch at 'a': missing .*, unknown \['b'\]"),
        ({"a": SCALER}, "", r"no state of torch at the top: missing .*, unknown \['a'\]"),
        ({"a": {"b": 1}}, None, "no state of torch at the top, nor anywhere inside: missing"),
        ({str(number): 1 for number in range(20)}, None, "and 12 more"),
        ({str(number): 1 for number in range(8)}, None, r"'7'\]$"),
        ({}, None, "got none: the scaler was off"),
        ({"a": {}}, "a", "got none: the scaler was off"),
    ],
)
def test_where_there_is_none_it_is_said(mapping, path, message):
    """What is missing there, and where something is."""
    with pytest.raises(ValueError, match=message):
        at(mapping, at=path)


def test_a_deep_checkpoint_is_searched():
    """Deeper than a function can call itself."""
    mapping = {"scaler": SCALER}
    for _ in range(5000):
        mapping = {"a": [mapping]}
    assert at(mapping)[1] == 8.0
