"""Tests of the search for a scaler in a training checkpoint, by its keys or by a path."""

from collections import OrderedDict

import pytest

from ampscale import checkpoints
from ampscale.checkpoints.formats.locate import find_states

SCALER = {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3}
OTHER = {**SCALER, "scale": 16.0}


def path_and_scale(mapping, **options):
    """Return the path of torch's scaler in *mapping*, and its scale."""
    checkpoint = checkpoints.load("torch", mapping, **options)
    return checkpoint.at, float(checkpoint.state.scale)


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
def test_single_match_is_loaded(mapping, path):
    """Mappings, lists, tuples and keys with a common prefix are searched; the reported path leads to the same scaler."""
    assert path_and_scale(mapping) == (path, 8.0)
    assert path_and_scale(mapping, at=path) == (path, 8.0)


def test_several_matches_raise_an_error():
    """The error lists the paths of all matches, each of which can be passed as `at`."""
    mapping = {"one": SCALER, "more": [OTHER]}
    with pytest.raises(ValueError, match=r"several states of torch; at must be the path of one: \['more.0', 'one'\]"):
        path_and_scale(mapping)
    assert path_and_scale(mapping, at="more.0") == ("more.0", 16.0)
    assert path_and_scale(mapping, at="one") == ("one", 8.0)


def test_states_of_all_formats_are_found():
    """The search covers all paths, or only the given one."""
    mapping = {"one": SCALER, "more": [{"scale_value": 4.0, "counter": 0}]}
    formats = [checkpoints.FORMATS[name] for name in ("torch", "mindspore")]
    assert find_states(formats, mapping, None) == [("mindspore", "more.0"), ("torch", "one")]
    assert find_states(formats, mapping, "one") == [("torch", "one")]


def test_value_that_is_no_container_has_no_states():
    """A JSON file can consist of a number."""
    assert find_states([], 5.0, None) == []


def test_top_level_takes_precedence():
    """A state inside another one is ignored."""
    checkpoint = checkpoints.load("mindspore", {"scale_value": 8.0, "counter": 0, "inner": {"scale_value": 4.0, "counter": 0}})
    assert (checkpoint.at, float(checkpoint.state.scale), checkpoint.ignored) == ("", 8.0, ("inner",))


def test_shared_object_is_searched_once():
    """An object with two paths is one match, which can be loaded by either path. Cyclic mappings are supported."""
    assert path_and_scale({"one": SCALER, "two": SCALER})[1] == 8.0
    assert path_and_scale({"one": SCALER, "two": SCALER}, at="two") == ("two", 8.0)
    mapping = {"scaler": SCALER}
    mapping["self"] = mapping
    mapping["list"] = [mapping]
    assert path_and_scale(mapping) == ("scaler", 8.0)


@pytest.mark.parametrize(
    ("mapping", "path", "message"),
    [
        ({"a": {"b": 1}}, "c", r"at must be the path of a mapping, got 'c'; there are mappings at \['a'\]"),
        ({"a": {"b": 1}}, "a.b", "at must be the path of a mapping, got 'a.b'"),
        ({"a": {"b": SCALER}}, "b", "at must be the path of a mapping, got 'b'"),
        ({"a": [SCALER]}, "a", "at must be the path of a mapping, got 'a'"),
        ({"a": [SCALER]}, "a.1", "at must be the path of a mapping, got 'a.1'"),
        ({"a": {"b": 1}}, "a", r"no state of torch at 'a': missing .*, unknown \['b'\]"),
        ({"a": SCALER}, "", r"no state of torch at the top level: missing .*, unknown \['a'\]"),
        ({"a": {"b": 1}}, None, "no state of torch at the top level or below it: missing"),
        ({"a": {"b": 1}, "c": [{**SCALER, "d": 1}]}, None, r"the nearest mapping is at 'c\.0': unknown \['d'\]$"),
        ({str(number): 1 for number in range(20)}, None, "and 12 more"),
        ({str(number): 1 for number in range(8)}, None, r"'7'\]$"),
        ({}, None, "got an empty mapping, which is what a disabled scaler saves"),
        ({"a": {}}, "a", "got an empty mapping, which is what a disabled scaler saves"),
    ],
)
def test_missing_scaler_raises_an_error(mapping, path, message):
    """The error lists the missing and the unknown keys, or the paths of existing mappings."""
    with pytest.raises(ValueError, match=message):
        path_and_scale(mapping, at=path)


def test_value_is_searched_once_for_each_remaining_path():
    """A key can contain a dot, so a path of 20 names can be split into keys in 10,946 ways."""

    class Counted(dict):
        def items(self):
            searched.append(self)
            return super().items()

    searched, mapping, shorter = [], Counted(), Counted()
    for _ in range(20):
        mapping, shorter = Counted({"a": mapping, "a.a": shorter}), mapping
    assert find_states([], mapping, ".".join("a" * 20) + ".b") == []
    assert len(searched) < 100


def test_search_needs_no_recursion():
    """The checkpoint is nested deeper than Python's recursion limit."""
    mapping = {"scaler": SCALER}
    for _ in range(900):
        mapping = {"a": [mapping]}
    assert path_and_scale(mapping)[1] == 8.0
