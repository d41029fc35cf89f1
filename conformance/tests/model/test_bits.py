"""Arrays as bits: construction, JSON, and trees of arrays."""

import json
import math
from collections import OrderedDict, namedtuple

import pytest
from ampscale_conformance.model.bits import DIGITS, Bits, leaves, map_tree, tree_from_json, tree_to_json
from hypothesis import given
from hypothesis import strategies as st

Pair = namedtuple("Pair", "left right")
ONE = Bits("float16", (), (0x3C00,))
EMPTY = Bits("float32", (2, 0), ())
PAIR = Bits("complex64", (2,), (0x3F800000_40000000, 0xBF800000_00000000))


@st.composite
def arrays(draw):
    """Generate arrays with few elements, of any dtype."""
    dtype = draw(st.sampled_from(sorted(DIGITS)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = math.prod(shape)
    patterns = st.integers(0, 16 ** DIGITS[dtype] - 1)
    return Bits(dtype, shape, tuple(draw(st.lists(patterns, min_size=size, max_size=size))))


TREES = st.recursive(
    arrays() | st.none(),
    lambda child: (
        st.lists(child, max_size=3) | st.lists(child, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), child)
    ),
    max_leaves=6,
)


# --- one array ---


def test_to_json_writes_lower_case_hex_digits():
    """Every pattern has all its digits; the real component of a complex number comes first."""
    assert ONE.to_json() == {"dtype": "float16", "shape": [], "bits": ["3c00"]}
    assert EMPTY.to_json() == {"dtype": "float32", "shape": [2, 0], "bits": []}
    assert PAIR.to_json()["bits"] == ["3f80000040000000", "bf80000000000000"]
    assert Bits("bool", (2,), (0, 1)).to_json()["bits"] == ["00", "01"]


@given(arrays())
def test_arrays_round_trip_through_json(array):
    """All dtypes and several shapes are tested."""
    assert Bits.from_json(json.loads(json.dumps(array.to_json()))) == array


def test_bits_rejects_invalid_arrays():
    """The message contains the expected and the actual value."""
    for dtype, shape, bits, message in (
        ("float8", (), (0,), r"dtype must be one of \['bool', .*\], got 'float8'"),
        ("float16", (2,), (0,), r"an array of shape \(2,\) must have 2 elements, got 1"),
        ("float16", (), (), r"an array of shape \(\) must have 1 elements, got 0"),
        ("float16", (0,), (0,), r"an array of shape \(0,\) must have 0 elements, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Bits(dtype, shape, bits)


INVALID_MEMBERS = [
    *(("shape", shape, "a shape must be a list of integers, got") for shape in ([1.0], [True], 1, "1")),
    ("shape", [-1, -1], "shape must have sizes of at least 0, got"),
    ("shape", [2], "must have 2 elements, got 1"),
    *(("bits", bits, "an array must have a dtype, a shape, and bits as a list of strings, got") for bits in (5, [15360])),
    *(("bits", [text], "4 hex digits in lower case") for text in ("3c0", "03c00", "wxyz", "0x3f", "3_f8", "3C00")),
    ("dtype", ["float16"], "an array must have a dtype"),
    ("dtype", "half", "dtype must be one of .*, got 'half'"),
]


@pytest.mark.parametrize(("member", "value", "message"), INVALID_MEMBERS)
def test_from_json_rejects_invalid_members(member, value, message):
    """Patterns have exactly the hex digits of their dtype, in lower case; lengths in a shape are integers from 0 on."""
    with pytest.raises(ValueError, match=message):
        Bits.from_json({"dtype": "float16", "shape": [1], "bits": ["3c00"], member: value})


def test_from_json_rejects_other_json_values():
    """`Bits.from_json` and `tree_from_json` raise a ValueError."""
    for value in ("3c00", None, {"dtype": "float16", "shape": [1]}):
        with pytest.raises(ValueError, match="an array must have a dtype, a shape, and bits as a list of strings, got"):
            Bits.from_json(value)
    for value in (1, 1.5, True, "3c00", [1], {"dict": 3}, {"tuple": 3}, {"tuple": ["x"]}, {"dict": {"a": 0}}, {}, {"shape": []}):
        with pytest.raises(ValueError, match="an array must have"):
            tree_from_json(value)


# --- trees ---


def test_map_tree_applies_a_function_to_every_leaf():
    """Lists, tuples, NamedTuples and the order of keys are kept. None stays None, and the function is not called with it."""
    visited = []
    tree = {"b": [ONE, None], "a": (EMPTY, {"c": PAIR}), "d": [], "e": ()}
    mapped = map_tree(lambda leaf: visited.append(leaf) or leaf.dtype, tree)
    assert mapped == {"b": ["float16", None], "a": ("float32", {"c": "complex64"}), "d": [], "e": ()}
    assert list(mapped) == ["b", "a", "d", "e"]
    assert visited == [ONE, EMPTY, PAIR]
    assert type(map_tree(str, OrderedDict(a=1))) is dict  # any mapping becomes a dict
    assert map_tree(str, Pair([1], None)) == Pair(["1"], None)
    assert (map_tree(str, 1), map_tree(str, None)) == ("1", None)


def test_leaves_have_their_paths():
    """Paths are Python subscripts; None is a leaf."""
    tree = {"a": [ONE, None], 2: ({"c": EMPTY},), "none": []}
    assert leaves(tree) == [("['a'][0]", ONE), ("['a'][1]", None), ("[2][0]['c']", EMPTY)]
    assert leaves(ONE) == [("", ONE)]
    assert leaves([]) == []


@given(TREES)
def test_trees_round_trip_through_json(tree):
    """Tuples and lists are distinguished, and a key may be any text."""
    assert tree_from_json(json.loads(json.dumps(tree_to_json(tree)))) == tree


@given(TREES)
def test_map_tree_and_leaves_visit_the_same_leaves(tree):
    """The path of each leaf is unique."""
    visited = []
    map_tree(visited.append, tree)
    assert visited == [leaf for _, leaf in leaves(tree) if leaf is not None]
    assert len({path for path, _ in leaves(tree)}) == len(leaves(tree))
