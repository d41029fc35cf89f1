"""Pytrees: containers, leaves, and the paths in error messages."""

import re
from collections import OrderedDict, defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from errors import unexpected
from hypothesis import given
from libraries import with_dtypes
from strategies import DTYPES, alike, same
from strategies import trees as generated_trees

from ampscale import all_finite, scale
from ampscale.core import trees
from ampscale.core.trees import MOST_LEVELS, leaves, leaves_with_paths, map_leaves, select, structure, unflatten, zip_leaves

ONE, TWO, THREE = np.asarray(1.0), np.asarray([2.0]), np.asarray([3.0, 3.0])


class Pair(NamedTuple):
    first: object
    second: object


@pytest.mark.clause("SCALING-inputs")
def test_leaves_are_in_the_order_of_the_tree():
    """Dicts are in insertion order; a single array is a tree with one leaf."""
    nested = [None, (ONE, []), {"x": {}, "y": Pair(None, [TWO])}]
    for tree in ((ONE, TWO), [ONE, TWO], {"b": ONE, "a": TWO}, OrderedDict(b=ONE, a=TWO), Pair(ONE, TWO), nested):
        assert all(leaf is expected for leaf, expected in zip(leaves(tree), [ONE, TWO], strict=True))
    for leaf in (np.float32(1), np.asarray(1), np.zeros((0, 3))):
        assert leaves_with_paths(leaf) == [("tree", leaf)]


def test_structure_has_the_keys_of_each_container():
    """The keys of a NamedTuple are its fields, and those of a tuple its indices."""
    expected = [(dict, ("a", "b"), False), (tuple, range(2), False), "array", None, (Pair, ("first", "second"), True)]
    assert structure({"a": (ONE, None), "b": Pair(ONE, TWO)}) == expected


def test_array_of_any_library_is_a_leaf(library):
    """An array is never a container, whatever its shape."""
    for values in (1.0, [2.0], [[3.0, 4.0]], []):
        array = library.array(values)
        [first, second] = leaves({"a": [array], "b": (None, array)})
        assert first is second is array
        assert map_leaves(lambda leaf: (leaf,), [array])[0][0] is array


@pytest.mark.clause("SCALING-structure-kept")
@given(generated_trees())
def test_mapping_keeps_the_structure(tree):
    """The containers, the keys and the Nones are those of the tree, and the results are in the order of its leaves."""
    mapped = map_leaves(lambda leaf: (leaf,), tree)
    assert repr(mapped) == repr(unflatten(tree, [(leaf,) for leaf in leaves(tree)]))
    assert structure(map_leaves(np.ones_like, tree)) == structure(tree)


@pytest.mark.clause("SCALING-structure-kept")
def test_named_tuples_and_ordered_dicts_keep_their_type():
    """An OrderedDict also keeps the order of its keys."""
    mapped = map_leaves(lambda leaf: leaf + 1, Pair(OrderedDict(b=ONE, a=TWO), [THREE]))
    assert isinstance(mapped, Pair)
    assert isinstance(mapped.first, OrderedDict)
    assert list(mapped.first) == ["b", "a"]
    assert alike(mapped.second[0], THREE + 1)


@pytest.mark.clause("SCALING-float-leaves")
def test_leaf_that_is_not_an_array_raises():
    """The error contains the path as a Python expression, and the type."""
    rows = [
        ("w", "tree", "str"),
        ({"w": [ONE, 1.5]}, "tree['w'][1]", "float"),
        ((ONE, {"a": {"b": "w"}}), "tree[1]['a']['b']", "str"),
        ([Pair(ONE, {3})], "tree[0][1]", "set"),
        ([defaultdict(list)], "tree[0]", "defaultdict"),
        ({"w": np.float32}, "tree['w']", "<class 'numpy.float32'>"),  # a class has the attributes of its arrays
    ]
    message = "^{} must be an array.*got {}$"
    cases = [(path, partial(leaves, tree), TypeError, message.format(re.escape(path), name)) for tree, path, name in rows]
    assert unexpected(cases) == []


@pytest.mark.clause("SCALING-inputs")
def test_tree_that_contains_itself_raises():
    """The error contains the paths of both occurrences."""
    circle = [ONE, [TWO]]
    circle += [{"w": (circle, TWO)}, [circle]]
    for function in (leaves, leaves_with_paths, partial(scale, scale=2.0), all_finite):
        with pytest.raises(ValueError, match=r"^tree must not contain itself, got tree again at tree\[2\]\['w'\]\[0\]$"):
            function(circle)


@pytest.mark.clause("SCALING-inputs")
def test_tree_with_too_many_levels_raises():
    """A tree with `MOST_LEVELS` levels is accepted."""
    deep = [TWO]
    for _ in range(MOST_LEVELS - 1):
        deep = [deep]
    for function in (leaves, leaves_with_paths, partial(scale, scale=2.0), all_finite):
        assert function(deep) is not None
        with pytest.raises(ValueError, match=f"^tree must have at most {MOST_LEVELS} levels of nested containers$"):
            function([deep])


def test_registered_container_types_are_containers(monkeypatch):
    """Registered containers are mapped like lists. `flatten` is not called with arrays, None, tuples, lists or dicts."""
    received = []

    class Box:
        def __init__(self, *inside):
            self.inside = inside

    def flatten(value):
        received.append(value)
        return (value.inside, lambda children: Box(*children)) if isinstance(value, Box) else None

    monkeypatch.setattr(trees, "_flatteners", [])
    trees.register_container(lambda _: None)
    trees.register_container(flatten)
    tree = {"a": Box(ONE, None, (TWO,)), "b": THREE}
    assert leaves_with_paths(tree) == [("tree['a'][0]", ONE), ("tree['a'][2][0]", TWO), ("tree['b']", THREE)]
    mapped = map_leaves(lambda leaf, other: (leaf, other), tree, {"a": Box(TWO, None, None), "b": None})
    assert (mapped["a"].inside, mapped["b"]) == (((ONE, TWO), None, ((TWO, None),)), (THREE, None))
    assert {type(value) for value in received} == {Box}
    with pytest.raises(TypeError, match=r"^tree must be an array.* got set$"):
        leaves({3})


def test_trees_are_matched_by_key():
    """Dicts are matched by key in any order, and None can replace a whole branch."""
    tree = {"a": ONE, "b": [TWO, THREE]}
    assert zip_leaves(tree, {"b": None, "a": THREE}) == [(ONE, THREE), (TWO, None), (THREE, None)]
    assert zip_leaves(tree, None) == [(ONE, None), (TWO, None), (THREE, None)]


def test_different_structures_raise():
    """The error states the expected structure and the one that was passed."""
    rows = [
        ([ONE], "the keys [0, 1]", "the keys [0]"),
        ([ONE, [TWO]], "an array", "the keys [0]"),
        ({"a": ONE, "b": TWO}, "the keys [0, 1]", "the keys ['a', 'b']"),
        (ONE, "the keys [0, 1]", "ndarray"),
    ]
    message = "same structure.*expected {}.*got {}$"
    cases = [
        (other, partial(map_leaves, max, [ONE, TWO], other), ValueError, message.format(re.escape(expected), re.escape(passed)))
        for other, expected, passed in rows
    ]
    assert unexpected(cases) == []


@pytest.mark.parametrize("flag", [True, False])
@with_dtypes(*DTYPES)
def test_select_returns_one_of_two_trees(library, dtype, flag):
    """If either tree has None, the value of the old tree is returned for either flag."""
    one, two, three = (library.array(values, dtype) for values in (1.0, [2.0], [3.0, np.nan]))
    old, new = {"a": one, "b": two, "c": None, "d": three}, {"a": -one, "b": None, "c": three, "d": -three}
    chosen = select(library.array(flag, "bool"), new, old)
    expected = {**(new if flag else old), "b": two, "c": None}
    assert same(library.to_numpy(chosen), library.to_numpy(expected))
    assert chosen["c"] is None


def test_list_subclass_that_cannot_be_created_from_its_members_raises():
    """The first argument of the subclass is a name, so the result would lose the members."""

    class Named(list):
        def __init__(self, name, members=()):
            super().__init__(members)

    with pytest.raises(TypeError, match=r"^a subclass of tuple or list must be created from a list of members, got Named$"):
        map_leaves(lambda leaf: leaf, Named("weights", [np.ones(1)]))
