"""A rule checks itself when it is made, and is a value: comparable, hashable, printed so that it can be read back."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import on

from ampscale.core.constants import REFILLS
from ampscale.core.rule import LossScaleRule
from ampscale.core.trees import map_leaves

NUMBERS = ["init_scale", "growth_factor", "backoff_factor", "min_scale", "max_scale", "first_growth_factor", "rate", "stop_below"]
COUNTS = ["growth_interval", "hysteresis", "growth_offset"]
FLAGS = ["backoff_divides", "growth_guard", "wide_factor", "gate", "stop_at_floor", "lag"]
TOO_LARGE = 10**400
KINDS = ["nan", "inf", "-inf", "zero", "negative", "too-large"]


def refused(error, **fields):
    """A rule with these fields is refused; the message names the last of them, and what came."""
    name, value = list(fields.items())[-1]
    with pytest.raises(error, match=f"^{name} must ") as caught:
        LossScaleRule(**fields)
    assert f"got {value!r}" in str(caught.value)


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0, -1.0, TOO_LARGE], ids=KINDS)
def test_numbers_are_positive_and_finite(name, value):
    """NaN, the infinities, zero, a negative number and one that no float can hold are ValueErrors in every field."""
    refused(ValueError, **{name: value})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, "2", 1j, [2.0], np.float32(2), np.ones(())], ids=repr)
def test_numbers_are_numbers(name, value):
    """A bool, a string, a complex number and an array are TypeErrors in every field."""
    refused(TypeError, **{name: value})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("growth_factor", 0.999),
        ("first_growth_factor", 0.999),
        ("backoff_factor", 1.001),
        ("init_scale", None),
        ("growth_factor", None),
    ],
)
def test_factors_lie_on_their_side_of_1(name, value):
    """A growth does not shrink and a backoff does not grow; only bounds can be None."""
    refused(TypeError if value is None else ValueError, **{name: value})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [2.0, "2", True, None, np.int32(2)], ids=repr)
def test_counts_are_integers(name, value):
    """A float, a string, a bool and a NumPy integer are TypeErrors."""
    refused(TypeError, **{name: value})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("value", [2**31, -(2**31), 10**30], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_fit_into_int32(name, value):
    """A count that no counter reaches is a ValueError, and so is a window or a hysteresis below 1."""
    refused(ValueError, **{name: value})
    if name != "growth_offset":
        refused(ValueError, **{name: 0})
        refused(ValueError, **{name: -1})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [0, 1, None, "yes"], ids=repr)
def test_flags_are_bools(name, value):
    """What is merely true or false is a TypeError."""
    refused(TypeError, **{name: value})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("value", [("finit",), ("finite", "overflow"), ("",)], ids=repr)
def test_refill_names_events(value):
    """Another word than finite, growth and backoff is a ValueError."""
    refused(ValueError, refill=value)


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("value", ["finite", ["finite"], {"finite"}, None, ([],), ("finite", 3)], ids=repr)
def test_refill_is_a_tuple_of_strings(value):
    """A string, a list and a set are TypeErrors: a rule is hashable, and a string has letters."""
    refused(TypeError, refill=value)


@pytest.mark.clause("MACHINE-rule-checked")
def test_the_scale_has_32_or_64_bits():
    """Any other dtype is refused: a scale is never 16 bits wide."""
    refused(ValueError, dtype="float16")
    refused(ValueError, dtype="double")
    refused(TypeError, dtype=np.float32)


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("name", ["init_scale", "min_scale", "max_scale"])
def test_scales_are_representable(name):
    """A scale that float32 would make zero or infinite is refused there, and welcome in float64."""
    bounds = {"max_scale": 1e300} if name == "init_scale" else {"init_scale": 1e300} if name == "max_scale" else {}
    refused(ValueError, **{name: 1e300})
    refused(ValueError, **{name: 1e-300})
    assert LossScaleRule(dtype="float64", **{**bounds, name: 1e300 if bounds else 1e-300})


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize(
    "bounds",
    [{"min_scale": 2.0**17}, {"max_scale": 2.0**15}, {"min_scale": 4.0, "max_scale": 2.0}],
    ids=["under-the-floor", "above-the-cap", "crossed"],
)
def test_the_first_scale_lies_within_the_bounds(bounds):
    """A start outside the bounds, and bounds that leave no room, are ValueErrors that name all three."""
    with pytest.raises(ValueError, match=r"init_scale .* min_scale .* max_scale .* got 65536.0"):
        LossScaleRule(**bounds)
    assert LossScaleRule(min_scale=2.0**16, max_scale=2.0**16).init_scale == 2.0**16


@pytest.mark.clause("MACHINE-rule-checked")
def test_finite_is_a_bool(library):
    """What is merely true or false is no flag: a TypeError."""
    rule = LossScaleRule()
    for finite in (1, 0.0, None, "True", library.array(1, "int32"), library.array([1.0])):
        with pytest.raises(TypeError, match=r"^finite must be a bool"):
            rule.update(rule.init(like=library.array(0)), finite)


def test_finite_has_the_shape_of_the_state(library):
    """A batch of flags for one state would make a batch of it: a ValueError."""
    rule = LossScaleRule()
    with pytest.raises(ValueError, match=r"^finite must have shape \(\), got \(3,\)"):
        rule.update(rule.init(like=library.array(0)), library.array([1, 1, 1], "bool"))


@on("jax")
@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # JAX warns on its way to the error
@pytest.mark.parametrize("rule", [LossScaleRule(dtype="float64"), LossScaleRule(wide_factor=True)], ids=["held", "multiplied"])
def test_a_rule_of_64_bits_needs_a_library_of_64_bits(library, rule):
    """Where JAX has no float64, a rule that needs it is refused, and works again where it has."""
    import jax

    with jax.enable_x64(False), pytest.raises(TypeError, match="needs an array library with float64, got float32"):
        rule.init(like=library.array(0))
    assert rule.init(like=library.array(0)).scale.dtype == rule.dtype


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize(
    ("alone", "company"),
    [
        ({"stop_at_floor": True}, {"min_scale": 1.0}),
        ({"gate": True}, {"max_scale": 2.0**20}),
        ({"gate": True}, {"min_scale": 1.0}),
        ({"hysteresis": 2, "rate": 0.5}, {"hysteresis": 1}),
    ],
    ids=["stop", "gate-above", "gate-below", "rate"],
)
def test_an_axis_that_needs_another_is_refused_alone(alone, company):
    """A stop at no floor, a gate without a bound, and a rate beside a count are ValueErrors."""
    with pytest.raises(ValueError, match=r"^(stop_at_floor|gate|hysteresis) must be"):
        LossScaleRule(**alone)
    assert LossScaleRule(**{**alone, **company})


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize(
    ("maker", "taker", "name"),
    [
        (LossScaleRule(), LossScaleRule(lag=True), "next_scale"),
        (LossScaleRule(lag=True), LossScaleRule(), "next_scale"),
        (LossScaleRule(), LossScaleRule(rate=0.5), "steps"),
        (LossScaleRule(rate=0.5), LossScaleRule(), "steps"),
    ],
    ids=["no-lag", "lag", "no-rate", "rate"],
)
def test_a_state_of_another_kind_is_refused(library, maker, taker, name):
    """What one rule needs and another does not is neither made up nor lost: a ValueError."""
    state = maker.init(like=library.array(0))
    for method in (taker.update, taker.stops):
        with pytest.raises(ValueError, match=f"^state.{name} must be"):
            method(state, True)


@pytest.mark.clause("MACHINE-division")
@pytest.mark.parametrize("factor", [*range(1, 200), 1.1, 1.5, 1.8, 2.25, 1.0625, 4.7, 10**6 + 3])
def test_a_divisor_is_what_it_was_before_it_was_inverted(factor):
    """A scaler that was given 49 divides by 49, though 1/(1/49) is larger."""
    rule = LossScaleRule(7000.0, backoff_factor=1 / factor, backoff_divides=True, dtype="float64")
    assert rule.backoff_divisor == factor
    assert float(rule.update(rule.init(), False).scale) == 7000 / factor


@pytest.mark.clause("MACHINE-stop")
def test_a_stop_is_told_for_each_of_a_batch(library):
    """It has the state's shape also where one flag stands for all, and a rule without a stop never stops."""
    rule = LossScaleRule(init_scale=4.0, min_scale=2.0, stop_at_floor=True)
    states = map_leaves(lambda array: library.put(np.repeat(library.get(array)[None], 2)), rule.init(like=library.array(0)))
    states = states._replace(scale=library.array([2.0, 4.0]))
    for flag in (False, library.array(False, "bool"), library.array([False, False], "bool")):
        assert library.to_numpy(rule.stops(states, flag)).tolist() == [True, False]
        assert library.to_numpy(rule.update(states, flag).scale).tolist() == [2, 2]
        assert library.to_numpy(LossScaleRule().stops(states, flag)).tolist() == [False, False]
    assert library.to_numpy(rule.stops(states, True)).tolist() == [False, False]


rules = st.builds(
    LossScaleRule,
    init_scale=st.floats(2.0**-100, 2.0**100, width=32) | st.integers(1, 2**30),
    growth_factor=st.floats(1, 2.0**40),
    backoff_factor=st.floats(2.0**-40, 1),
    growth_interval=st.integers(1, 2**31 - 1),
    refill=st.sets(st.sampled_from(REFILLS)).map(tuple),
    dtype=st.sampled_from(["float32", "float64"]),
    rate=st.none() | st.floats(0.001, 2),
    lag=st.booleans(),
)


@pytest.mark.clause("MACHINE-rule-json")
@given(rules)
def test_a_rule_goes_through_json_and_print(rule):
    """Read back it is equal and has the same type in every field, and the text has a member for each."""
    text = rule.to_json()
    for again in (LossScaleRule.from_json(text), eval(repr(rule), {"LossScaleRule": LossScaleRule})):
        assert again == rule
        assert list(map(type, vars(again).values())) == list(map(type, vars(rule).values()))
    assert list(json.loads(text)) == [field.name for field in dataclasses.fields(rule)]


@pytest.mark.clause("MACHINE-rule-json")
@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[]", ValueError, "a JSON object"),
        ("7", ValueError, "a JSON object"),
        ("", ValueError, "a JSON object"),
        ('{"init_scale": 2.0', ValueError, "a JSON object"),
        ('{"init": 2.0}', ValueError, r"got \['init'\]"),
        ('{"init_scale": 2.0, "init_scale": 4.0}', ValueError, "once"),
        ('{"init_scale": NaN}', ValueError, "init_scale must be"),
        ('{"init_scale": "2"}', TypeError, "init_scale must be"),
        ('{"refill": "finite"}', TypeError, "refill must be"),
        ('{"refill": ["finit"]}', ValueError, "refill must be"),
    ],
    ids=["list", "number", "nothing", "truncated", "unknown", "twice", "nan", "text", "word", "event"],
)
def test_json_that_is_no_rule_is_refused(text, error, message):
    """What is no object, has an unknown member, says one twice, or holds a wrong value."""
    with pytest.raises(error, match=message):
        LossScaleRule.from_json(text)


@pytest.mark.clause("MACHINE-rule-json")
def test_a_member_left_out_has_its_default():
    """A file may say no more than what is special."""
    assert LossScaleRule.from_json('{"init_scale": 8.0, "refill": ["growth"]}') == LossScaleRule(8.0, refill=("growth",))


def test_a_rule_is_a_value():
    """Rules with the same constants are equal, hash alike, cannot be changed, and print as what makes them."""
    rule = LossScaleRule(init_scale=8.0, refill=("growth",), min_scale=1.0)
    assert eval(repr(rule), {"LossScaleRule": LossScaleRule}) == rule
    assert len({rule, dataclasses.replace(rule), LossScaleRule()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.init_scale = 4.0
