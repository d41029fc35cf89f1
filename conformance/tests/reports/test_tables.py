"""What is told shortly is told whole."""

import json
import math
from itertools import pairwise

import pytest
from ampscale_conformance.reports import tables
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule


def unrolled(told):
    return [item for times, items in told for item in items * times]


@given(st.lists(st.sampled_from("ab") | st.sampled_from("abcdefgh"), max_size=60))
def test_runs_tell_every_item_in_order(items):
    """Whatever the items are, and in few pairs."""
    told = tables.runs(items)
    assert unrolled(told) == items
    assert all(inside for _, inside in told)
    assert all(left[0] > 1 or right[0] > 1 for left, right in pairwise(told))


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ("", []),
        ("abc", [(1, ["a", "b", "c"])]),
        ("aaa", [(1, ["a", "a", "a"])]),
        ("aaaa", [(4, ["a"])]),
        ("abab", [(2, ["a", "b"])]),
        ("a" * 70000 + "b", [(70000, ["a"]), (1, ["b"])]),
        ("ab" * 500 + "a", [(500, ["a", "b"]), (1, ["a"])]),
        ("xyaaaaz", [(1, ["x", "y"]), (4, ["a"]), (1, ["z"])]),
    ],
)
def test_what_is_repeated_is_written_once(items, told):
    """One item or two in turn, from four on."""
    assert tables.runs(items) == told


@given(st.floats())
def test_a_shortened_float_is_the_same(value):
    """To the last bit; its zeros at the end are gone, and other words lose nothing."""
    told = tables.short(value.hex())
    back = float.fromhex(told)
    assert back.hex() == value.hex() or math.isnan(value)
    assert "0p" not in told or told.lstrip("-").startswith("0x0p")
    assert tables.short(f"a {value.hex()}") == f"a {value.hex()}"


def test_a_text_that_begins_as_a_float_stays_as_it_is():
    """At once, however many zeros it has."""
    text = f"0x1.{'0' * 10**6}ap+1"
    assert tables.short(text) == text


def test_long_arrays_are_told_in_runs_and_short_ones_in_bits():
    """Wherever they stand."""
    long = {"dtype": "float16", "shape": [17], "bits": ["3c00"] * 17}
    small = {"dtype": "float16", "shape": [4, 4], "bits": ["3c00"] * 16}
    told = {"dtype": "float16", "shape": [17], "runs": [(17, ["3c00"])]}
    assert tables.brief([{"dict": {"a": long, "b": small}}, {"tuple": [long]}]) == [
        {"dict": {"a": told, "b": small}},
        {"tuple": [told]},
    ]


def test_a_rule_is_told_by_what_is_not_usual():
    """What is left out has the default; what only looks like a rule is left whole."""
    rule = LossScaleRule(init_scale=8.0, hysteresis=2, delayed_update=True, reset_bad_steps_on=("growth",))
    told = tables.brief([json.loads(rule.to_json())])
    assert told == [{"init_scale": 8.0, "hysteresis": 2, "delayed_update": True, "reset_bad_steps_on": ["growth"]}]
    assert LossScaleRule.from_json(json.dumps(told[0])) == rule
    options = {"dict": {"growth_interval": 2000, "delayed_update": False}}
    assert tables.brief(options) == options


def test_a_call_without_result_says_so_by_silence():
    """As one that raised nothing."""
    call = {"method": "update", "arguments": ["0x1.0000000000000p+8"], "result": None, "raised": ""}
    assert tables.brief_call(call) == {"method": "update", "arguments": ["0x1p+8"]}
    assert tables.brief_call({**call, "result": False, "raised": "E: x"}) == {
        "method": "update",
        "arguments": ["0x1p+8"],
        "result": False,
        "raised": "E: x",
    }


def test_equal_rows_have_one_place():
    """In the order in which they came; the order of members makes no difference."""
    table = tables.Table()
    assert [table.index(row) for row in ([1], {"a": 1, "b": 2}, [1], {"b": 2, "a": 1}, [True], [1.0])] == [0, 1, 0, 1, 2, 3]
    assert table.rows == [[1], {"a": 1, "b": 2}, [True], [1.0]]
