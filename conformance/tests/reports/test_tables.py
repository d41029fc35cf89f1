"""Compact encoding of reports: runs, short floats and rules, and shared rows. It loses nothing."""

import json
import math
from itertools import pairwise

import pytest
from ampscale_conformance.reports import tables
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule


def expanded(encoded):
    """Return the items of runs."""
    return [item for times, items in encoded for item in items * times]


@given(st.lists(st.sampled_from("ab") | st.sampled_from("abcdefgh"), max_size=60))
def test_runs_round_trip(items):
    """No run is empty, and of two adjacent runs at least one is repeated."""
    encoded = tables.runs(items)
    assert expanded(encoded) == items
    assert all(repeated for _, repeated in encoded)
    assert all(left[0] > 1 or right[0] > 1 for left, right in pairwise(encoded))


@pytest.mark.parametrize(
    ("items", "encoded"),
    [
        ("", []),
        ("abc", [(1, ["a", "b", "c"])]),
        ("aaa", [(1, ["a", "a", "a"])]),
        ("aaaa", [(4, ["a"])]),
        ("abab", [(2, ["a", "b"])]),
        ("a" * 70000 + "b", [(70000, ["a"]), (1, ["b"])]),
        ("ab" * 500 + "a", [(500, ["a", "b"]), (1, ["a"])]),
        ("xyaaaaz", [(1, ["x", "y"]), (4, ["a"]), (1, ["z"])]),
        ("abcdefgh" * 3 + "abc", [(3, list("abcdefgh")), (1, ["a", "b", "c"])]),
        ("abcdefghi" * 2, [(1, list("abcdefghi" * 2))]),
    ],
)
def test_runs_of_four_or_more_items_are_compressed(items, encoded):
    """A run repeats up to eight items in turn."""
    assert tables.runs(items) == encoded


@given(st.floats())
def test_short_floats_are_exact(value):
    """Trailing zeros are removed, and other texts are unchanged."""
    encoded = tables.short(value.hex())
    value_read = float.fromhex(encoded)
    assert value_read.hex() == value.hex() or math.isnan(value)
    assert "0p" not in encoded or encoded.lstrip("-").startswith("0x0p")
    assert tables.short(f"a {value.hex()}") == f"a {value.hex()}"


def test_a_text_that_starts_like_a_float_is_unchanged():
    """A million zeros take linear time."""
    text = f"0x1.{'0' * 10**6}ap+1"
    assert tables.short(text) == text


def test_arrays_of_more_than_16_elements_are_runs():
    """Arrays may be nested."""
    long = {"dtype": "float16", "shape": [17], "bits": ["3c00"] * 17}
    small = {"dtype": "float16", "shape": [4, 4], "bits": ["3c00"] * 16}
    encoded = {"dtype": "float16", "shape": [17], "runs": [(17, ["3c00"])]}
    assert tables.brief([{"dict": {"a": long, "b": small}}, {"tuple": [long]}]) == [
        {"dict": {"a": encoded, "b": small}},
        {"tuple": [encoded]},
    ]


def test_a_rule_has_only_the_fields_that_differ_from_the_defaults():
    """Objects with some fields of a rule are unchanged."""
    rule = LossScaleRule(init_scale=8.0, hysteresis=2, delayed_update=True, reset_bad_steps_on=("growth",))
    encoded = tables.brief([json.loads(rule.to_json())])
    assert encoded == [{"init_scale": 8.0, "hysteresis": 2, "delayed_update": True, "reset_bad_steps_on": ["growth"]}]
    assert LossScaleRule.from_json(json.dumps(encoded[0])) == rule
    options = {"dict": {"growth_interval": 2000, "delayed_update": False}}
    assert tables.brief(options) == options


def test_a_call_omits_empty_members():
    """Such members are a result of None and an empty error."""
    call = {"method": "update", "arguments": ["0x1.0000000000000p+8"], "result": None, "raised": ""}
    assert tables.brief_call(call) == {"method": "update", "arguments": ["0x1p+8"]}
    assert tables.brief_call({**call, "result": False, "raised": "E: x"}) == {
        "method": "update",
        "arguments": ["0x1p+8"],
        "result": False,
        "raised": "E: x",
    }


def test_equal_rows_share_an_index():
    """Rows keep their order. The order of members is ignored."""
    table = tables.Table()
    assert [table.index(row) for row in ([1], {"a": 1, "b": 2}, [1], {"b": 2, "a": 1}, [True], [1.0])] == [0, 1, 0, 1, 2, 3]
    assert table.rows == [[1], {"a": 1, "b": 2}, [True], [1.0]]
