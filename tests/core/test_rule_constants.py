"""Constants of a rule are checked when they are made, and are a value: comparable, hashable, readable from their own text."""

import dataclasses
import json
import math
import re
from functools import partial

import numpy as np
import pytest
from errors import unexpected
from hypothesis import given
from strategies import rules

from ampscale.core.rule import LossScaleRule
from ampscale.core.rule_constants import RuleConstants

NUMBERS = [
    "init_scale",
    "growth_factor",
    "backoff_factor",
    "min_scale",
    "max_scale",
    "warmup_growth_factor",
    "overflow_tolerance",
    "raise_at_or_below",
]
COUNTS = ["growth_interval", "hysteresis", "initial_good_steps"]
FLAGS = ["divide_on_backoff", "skip_infinite_growth", "float64_factor", "block_at_bounds", "raise_at_min_scale", "delayed_update"]
WRONG_VALUES = [
    *[(name, value) for name in NUMBERS for value in (math.nan, math.inf, -math.inf, 0, -1.0, 10**400)],
    *[(name, value) for name in COUNTS for value in (2**31, -(2**31), 10**30)],
    *[(name, value) for name in COUNTS[:2] for value in (0, -1)],
    *[("growth_factor", 0.999), ("warmup_growth_factor", 0.999), ("backoff_factor", 1.001)],
    *[("reset_bad_steps_on", value) for value in (("finit",), ("finite", "overflow"), ("",))],
    *[("dtype", "float16"), ("dtype", "double")],
    *[(name, value) for name in ("init_scale", "min_scale", "max_scale", "raise_at_or_below") for value in (1e300, 1e-300)],
]
WRONG_TYPES = [
    *[(name, value) for name in NUMBERS for value in (True, "2", 1j, [2.0], np.float32(2), np.ones(()))],
    *[("init_scale", None), ("growth_factor", None)],
    *[(name, value) for name in COUNTS for value in (2.0, "2", True, None, np.int32(2))],
    *[(name, value) for name in FLAGS for value in (0, 1, None, "yes")],
    *[("reset_bad_steps_on", value) for value in ("finite", ["finite"], {"finite"}, None, ([],), ("finite", 3))],
    ("dtype", np.float32),
]


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize(("error", "fields"), [(ValueError, WRONG_VALUES), (TypeError, WRONG_TYPES)], ids=["values", "types"])
def test_a_wrong_constant_raises(error, fields):
    """The message names the field and the value that was passed."""
    cases = [
        ((name, value), partial(RuleConstants, **{name: value}), error, f"^{name} must .*got {re.escape(repr(value))}")
        for name, value in fields
    ]
    assert unexpected(cases) == []


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("name", ["init_scale", "min_scale", "max_scale"])
def test_float64_holds_scales_that_float32_does_not(name):
    """1e300 or 1e-300, by which float32 would be infinite or zero."""
    bounds = {"max_scale": 1e300} if name == "init_scale" else {"init_scale": 1e300} if name == "max_scale" else {}
    assert RuleConstants(dtype="float64", **{**bounds, name: 1e300 if bounds else 1e-300})


@pytest.mark.clause("MACHINE-rule-checked")
def test_constants_that_exclude_each_other_raise():
    """An initial scale outside the bounds; an axis without the one that it requires. Limits do not."""
    cases = [
        *[
            (bounds, partial(RuleConstants, **bounds), ValueError, r"^init_scale .* min_scale .* max_scale .* got 65536.0")
            for bounds in ({"min_scale": 2.0**17}, {"max_scale": 2.0**15}, {"min_scale": 4.0, "max_scale": 2.0})
        ],
        *[
            (alone, partial(RuleConstants, **alone), ValueError, f"^{next(iter(alone))}(=True)? requires")
            for alone in ({"raise_at_min_scale": True}, {"block_at_bounds": True}, {"overflow_tolerance": 0.5, "hysteresis": 2})
        ],
    ]
    assert unexpected(cases) == []
    assert RuleConstants(min_scale=2.0**16, max_scale=2.0**16).init_scale == 2.0**16
    for company in ({"min_scale": 1.0}, {"max_scale": 2.0**20}):
        assert RuleConstants(block_at_bounds=True, **company)
    assert RuleConstants(raise_at_min_scale=True, min_scale=1.0)
    assert RuleConstants(hysteresis=1, overflow_tolerance=0.5)
    for name, low in (("growth_interval", 1), ("hysteresis", 1), ("initial_good_steps", 1 - 2**31)):
        assert [getattr(RuleConstants(**{name: count}), name) for count in (low, 2**31 - 1)] == [low, 2**31 - 1]


@pytest.mark.clause("MACHINE-divide-on-backoff")
def test_a_divisor_is_the_number_that_was_inverted():
    """A scaler that was given 49 divides by 49, although 1/(1/49) is larger; no number was inverted to 0.9."""
    factors = [*range(1, 200), 1.1, 1.5, 1.8, 2.25, 1.0625, 4.7, 10**6 + 3]
    assert [factor for factor in factors if RuleConstants(backoff_factor=1 / factor).backoff_divisor != factor] == []
    assert RuleConstants(backoff_factor=0.9).backoff_divisor == 1 / 0.9


@pytest.mark.clause("MACHINE-rule-json")
@given(rules())
def test_a_rule_survives_json_and_repr(rule):
    """Read back it is equal and has the same type in every field, and the text has a member for each."""
    text = rule.to_json()
    for again in (LossScaleRule.from_json(text), eval(repr(rule), {"LossScaleRule": LossScaleRule})):
        assert again == rule
        assert list(map(type, vars(again).values())) == list(map(type, vars(rule).values()))
    assert list(json.loads(text)) == [field.name for field in dataclasses.fields(rule)]


@pytest.mark.clause("MACHINE-rule-json")
def test_json_that_is_not_a_rule_raises():
    """No object, an unknown member, a member twice, or a wrong value."""
    rows = [
        *[(text, ValueError, "a JSON object") for text in ("[]", "7", "", '{"init_scale": 2.0')],
        ('{"init": 2.0}', ValueError, r"^unknown rule fields \['init'\]; known fields are "),
        ('{"init_scale": 2.0, "init_scale": 4.0}', ValueError, "^duplicate key in JSON object: 'init_scale'$"),
        ('{"init_scale": NaN}', ValueError, "must be finite, got NaN"),
        ('{"init_scale": "2"}', TypeError, "init_scale must be"),
        ('{"reset_bad_steps_on": "finite"}', TypeError, "reset_bad_steps_on must be"),
        ('{"reset_bad_steps_on": ["finit"]}', ValueError, "reset_bad_steps_on must be"),
    ]
    assert unexpected((text, partial(RuleConstants.from_json, text), error, pattern) for text, error, pattern in rows) == []


@pytest.mark.clause("MACHINE-rule-json")
def test_a_member_that_json_leaves_out_has_its_default():
    """A list of events becomes a tuple."""
    assert LossScaleRule.from_json('{"init_scale": 8.0, "reset_bad_steps_on": ["growth"]}') == LossScaleRule(
        8.0, reset_bad_steps_on=("growth",)
    )


def test_a_rule_is_a_value():
    """Rules with the same constants are equal, hash alike and cannot be changed."""
    rule = LossScaleRule(init_scale=8.0, reset_bad_steps_on=("growth",), min_scale=1.0)
    assert len({rule, dataclasses.replace(rule), LossScaleRule()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.init_scale = 4.0
