"""Constants of a rule: validation, comparison, hash and JSON."""

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

SCALES = ["init_scale", "min_scale", "max_scale", "raise_at_or_below"]
NUMBERS = [*SCALES, "growth_factor", "backoff_factor", "warmup_growth_factor", "overflow_tolerance"]
COUNTS = ["growth_interval", "hysteresis", "initial_good_steps"]
FLAGS = ["divide_on_backoff", "skip_infinite_growth", "float64_factor", "block_at_bounds", "raise_at_min_scale", "delayed_update"]
WRONG_VALUES = [
    *[(name, value) for name in NUMBERS for value in (math.nan, math.inf, -math.inf, 0, -1.0, 10**400)],
    *[(name, value) for name in COUNTS for value in (2**31, -(2**31), 10**30)],
    *[(name, value) for name in ("growth_interval", "hysteresis") for value in (0, -1)],
    *[("growth_factor", 0.999), ("warmup_growth_factor", 0.999), ("backoff_factor", 1.001)],
    *[("reset_bad_steps_on", value) for value in (("finit",), ("finite", "overflow"), ("",))],
    *[("dtype", "float16"), ("dtype", "double"), ("dtype", np.float16)],
    *[(name, value) for name in SCALES for value in (1e300, 1e-300)],
]
WRONG_TYPES = [
    *[(name, value) for name in NUMBERS for value in (True, "2", 1j, [2.0], np.float32(2), np.ones(()))],
    *[("init_scale", None), ("growth_factor", None)],
    *[(name, value) for name in COUNTS for value in (2.0, "2", True, None, np.int32(2))],
    *[(name, value) for name in FLAGS for value in (0, 1, None, "yes")],
    *[("reset_bad_steps_on", value) for value in ("finite", ["finite"], {"finite"}, None, ([],), ("finite", 3))],
    ("dtype", float),
]


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize(("error", "fields"), [(ValueError, WRONG_VALUES), (TypeError, WRONG_TYPES)], ids=["values", "types"])
def test_invalid_constant_raises(error, fields):
    """The message names the field and the value that was passed."""
    cases = [
        ((name, value), partial(RuleConstants, **{name: value}), error, f"^{name} must .*got {re.escape(repr(value))}")
        for name, value in fields
    ]
    assert unexpected(cases) == []


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64")], ids=repr)
def test_a_dtype_is_stored_as_its_name(dtype):
    """The rule equals the one that was created with the name, and has the same JSON."""
    rule, expected = RuleConstants(dtype=dtype), RuleConstants(dtype="float64")
    assert (rule, rule.dtype, rule.to_json()) == (expected, "float64", expected.to_json())


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("fields", [{"init_scale": 1e300}, {"min_scale": 1e-300}, {"init_scale": 1e300, "max_scale": 1e300}])
def test_float64_rule_accepts_scales_beyond_float32(fields):
    """In float32, 1e300 would be infinite and 1e-300 zero."""
    RuleConstants(dtype="float64", **fields)


@pytest.mark.clause("MACHINE-rule-checked")
def test_incompatible_constants_raise():
    """An initial scale is outside the bounds, or a constant lacks another that it requires."""
    rows = [
        ({"min_scale": 2.0**17}, "^init_scale must be at least min_scale 131072.0, got 65536.0$"),
        ({"max_scale": 2.0**15}, "^init_scale must be at most max_scale 32768.0, got 65536.0$"),
        ({"min_scale": 4.0, "max_scale": 2.0}, "^init_scale must be at most max_scale 2.0, got 65536.0$"),
        ({"raise_at_min_scale": True}, "^raise_at_min_scale=True requires"),
        ({"block_at_bounds": True}, "^block_at_bounds=True requires"),
        ({"overflow_tolerance": 0.5, "hysteresis": 2}, "^overflow_tolerance requires"),
    ]
    assert unexpected((fields, partial(RuleConstants, **fields), ValueError, message) for fields, message in rows) == []


@pytest.mark.clause("MACHINE-rule-checked")
def test_constants_at_their_limits_are_valid():
    """Both bounds may equal the initial scale, and one of them is enough for `block_at_bounds`."""
    RuleConstants(min_scale=2.0**16, max_scale=2.0**16, raise_at_min_scale=True)
    RuleConstants(block_at_bounds=True, min_scale=1.0)
    RuleConstants(block_at_bounds=True, max_scale=2.0**20, hysteresis=1, overflow_tolerance=0.5)
    RuleConstants(growth_interval=1, hysteresis=1, initial_good_steps=1 - 2**31)
    RuleConstants(growth_interval=2**31 - 1, hysteresis=2**31 - 1, initial_good_steps=2**31 - 1)


@pytest.mark.clause("MACHINE-divide-on-backoff")
def test_divisor_is_the_number_whose_reciprocal_was_given():
    """
    For 1 / 49 it is 49, although 1 / (1 / 49) is larger.

    No short number has the reciprocal 0.9. The last factor is the reciprocal of two equally short numbers: the nearer is chosen.
    """
    factors = [*range(1, 200), 1.1, 1.5, 1.8, 2.25, 1.0625, 4.7, 10**6 + 3]
    assert [factor for factor in factors if RuleConstants(backoff_factor=1 / factor).backoff_divisor != factor] == []
    assert RuleConstants(backoff_factor=0.9).backoff_divisor == 1 / 0.9
    assert RuleConstants(backoff_factor=0.14374113870935637).backoff_divisor == 6.956950591729994


@pytest.mark.clause("MACHINE-rule-json")
@given(rules())
def test_json_and_repr_restore_the_rule(rule):
    """Every field has the same value and type, and the JSON object has a member for every field."""
    text = rule.to_json()
    for restored in (LossScaleRule.from_json(text), eval(repr(rule), {"LossScaleRule": LossScaleRule})):
        assert restored == rule
        assert list(map(type, vars(restored).values())) == list(map(type, vars(rule).values()))
    assert list(json.loads(text)) == [field.name for field in dataclasses.fields(rule)]


@pytest.mark.clause("MACHINE-rule-json")
def test_invalid_json_raises():
    """The text is not an object, or has an unknown or a duplicate key, or an invalid value."""
    rows = [
        *[(text, ValueError, "a JSON object") for text in ("[]", "7", "", '{"init_scale": 2.0')],
        ('{"init": 2.0}', ValueError, r"^the keys of a rule must be among \['init_scale', .*\], got \['init'\]$"),
        ('{"init_scale": 2.0, "init_scale": 4.0}', ValueError, "^duplicate key in JSON object: 'init_scale'$"),
        ('{"init_scale": NaN}', ValueError, "must be finite, got NaN"),
        ('{"init_scale": "2"}', TypeError, "init_scale must be"),
        ('{"reset_bad_steps_on": "finite"}', TypeError, "reset_bad_steps_on must be"),
        ('{"reset_bad_steps_on": ["finit"]}', ValueError, "reset_bad_steps_on must be"),
    ]
    assert unexpected((text, partial(RuleConstants.from_json, text), error, pattern) for text, error, pattern in rows) == []


@pytest.mark.clause("MACHINE-rule-json")
def test_missing_json_member_has_its_default():
    """A list of events becomes a tuple, as the field requires."""
    assert LossScaleRule.from_json('{"init_scale": 8.0, "reset_bad_steps_on": ["growth"]}') == LossScaleRule(
        8.0, reset_bad_steps_on=("growth",)
    )


def test_rules_are_immutable_and_compare_and_hash_by_value():
    """Even an attribute with a misspelled name cannot be set."""
    rule = LossScaleRule(init_scale=8.0, reset_bad_steps_on=("growth",), min_scale=1.0)
    assert len({rule, dataclasses.replace(rule), LossScaleRule()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.init_scael = 4.0
