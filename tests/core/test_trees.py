"""Trees: what is a container, what is an array, and what an error says about where."""

from collections import OrderedDict, defaultdict
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import with_dtypes
from strategies import DTYPES, alike, same

from ampscale.core.trees import leaves, leaves_with_paths, map_leaves, rebuilt, rows, select

ONE, TWO, THREE = np.asarray(1.0), np.asarray([2.0]), np.asarray([3.0, 3.0])


class Pair(NamedTuple):
    first: object
    second: object


@pytest.mark.clause("SCALING-inputs")
@pytest.mark.parametrize(
    "tree",
    [
        (ONE, TWO),
        [ONE, TWO],
        {"b": ONE, "a": TWO},
        OrderedDict(b=ONE, a=TWO),
        Pair(ONE, TWO),
        [None, (ONE, []), {"x": {}, "y": Pair(None, [TWO])}],
    ],
    ids=["tuple", "list", "dict", "ordered-dict", "named-tuple", "nested"],
)
def test_containers_are_walked_in_order(tree):
    """The arrays of a tree come in the order in which it is written; dicts are not sorted."""
    assert all(found is wanted for found, wanted in zip(leaves(tree), [ONE, TWO], strict=True))


@pytest.mark.clause("SCALING-inputs")
@pytest.mark.parametrize("leaf", [np.float32(1), np.asarray(1), np.zeros((0, 3))], ids=["scalar", "0-d", "empty"])
def test_an_array_is_a_tree(leaf):
    """A bare array of any shape, a NumPy scalar among them, is a tree of one leaf."""
    assert leaves_with_paths(leaf) == [("tree", leaf)]


def test_an_array_of_any_library_is_a_leaf(library):
    """An array is not walked into, whatever its shape."""
    for values in (1.0, [2.0], [[3.0, 4.0]], []):
        array = library.array(values)
        [first, second] = leaves({"a": [array], "b": (None, array)})
        assert first is second is array
        assert map_leaves(lambda leaf: (leaf,), [array])[0][0] is array


@pytest.mark.clause("SCALING-structure-kept")
@given(st.data())
def test_mapping_keeps_the_structure(library, data):
    """A mapped tree has the containers, the keys and the Nones of the first."""
    tree = data.draw(library.trees())
    mapped = map_leaves(lambda leaf: (leaf,), tree)
    assert repr(mapped) == repr(rebuilt(tree, [(leaf,) for leaf in leaves(tree)]))
    assert outline(map_leaves(library.xp.ones_like, tree)) == outline(tree)


def outline(tree):
    """*tree* with a mark for each array."""
    if isinstance(tree, dict):
        return type(tree), [(key, outline(child)) for key, child in tree.items()]
    if isinstance(tree, tuple | list):
        return type(tree), [outline(child) for child in tree]
    return None if tree is None else "array"


@pytest.mark.clause("SCALING-structure-kept")
@pytest.mark.parametrize("empty", [None, (), [], {}, OrderedDict(), [None, {"a": None}]], ids=repr)
def test_an_empty_tree_maps_to_itself(empty):
    """A tree without arrays keeps its containers and its Nones, and the function is not called."""
    assert outline(map_leaves(pytest.fail, empty)) == outline(empty)


@pytest.mark.clause("SCALING-structure-kept")
def test_special_containers_keep_their_type():
    """A NamedTuple and an OrderedDict come back as what they were, key for key."""
    mapped = map_leaves(lambda leaf: leaf + 1, Pair(OrderedDict(b=ONE, a=TWO), [THREE]))
    assert isinstance(mapped, Pair)
    assert isinstance(mapped.first, OrderedDict)
    assert list(mapped.first) == ["b", "a"]
    assert alike(mapped.second[0], THREE + 1)


@pytest.mark.clause("SCALING-float-leaves")
@pytest.mark.parametrize(
    ("tree", "path", "kind"),
    [
        ("w", "tree", "str"),
        ({"w": [ONE, 1.5]}, "tree['w'][1]", "float"),
        ((ONE, {"a": {"b": "w"}}), "tree[1]['a']['b']", "str"),
        ([Pair(ONE, {3})], "tree[0][1]", "set"),
        ([defaultdict(list)], "tree[0]", "defaultdict"),
    ],
    ids=["bare", "number", "deep", "named-tuple", "other-dict"],
)
def test_what_is_no_array_is_named_by_its_path(tree, path, kind):
    """The error for a wrong leaf says where it stands, as one would write it, and what it is."""
    with pytest.raises(TypeError) as error:
        leaves(tree)
    assert str(error.value).startswith(f"{path} must be an array")
    assert str(error.value).endswith(f"got {kind}")


def test_other_trees_are_matched_by_key():
    """Dicts are matched by key, whatever their order, and None stands for a whole missing branch."""
    tree = {"a": ONE, "b": [TWO, THREE]}
    assert rows(tree, {"b": None, "a": THREE}) == [(ONE, THREE), (TWO, None), (THREE, None)]
    assert rows(tree, None) == [(ONE, None), (TWO, None), (THREE, None)]


@pytest.mark.parametrize(
    ("other", "wanted", "got"),
    [
        ([ONE], "[0, 1]", "[0]"),
        ([ONE, [TWO]], "an array", "[0]"),
        ({"a": ONE, "b": TWO}, "[0, 1]", "['a', 'b']"),
        (ONE, "[0, 1]", "ndarray"),
    ],
    ids=["shorter", "deeper", "other-keys", "bare"],
)
def test_trees_of_different_structure_are_refused(other, wanted, got):
    """Two trees that do not match are a ValueError that says what was wanted and what came."""
    with pytest.raises(ValueError, match="same structure") as error:
        map_leaves(max, [ONE, TWO], other)
    assert f"wanted {wanted}" in str(error.value)
    assert str(error.value).endswith(f"got {got}")


@pytest.mark.parametrize("flag", [True, False])
@with_dtypes(*DTYPES)
def test_selecting_takes_one_tree_whole(library, dtype, flag):
    """The flag chooses between two trees; where the new one holds None, the old value stays in either case."""
    one, two, three = (library.array(values, dtype) for values in (1.0, [2.0], [3.0, np.nan]))
    old, new = {"a": one, "b": two, "c": None, "d": three}, {"a": -one, "b": None, "c": three, "d": -three}
    chosen = select(library.array(flag, "bool"), new, old)
    wanted = {**(new if flag else old), "b": two, "c": None}
    assert same(library.to_numpy(chosen), library.to_numpy(wanted))
    assert chosen["c"] is None
