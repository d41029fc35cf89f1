"""Tests of the format "ampscale", which holds every rule and every state exactly."""

import json

import numpy as np
import pytest
from checkpoints.brute import small_rules
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.checkpoints import Checkpoint
from ampscale.core.machine import LossScaleState

PLAIN = checkpoints.save("ampscale", Checkpoint(presets.torch(), LossScaleState(2.0**16, 7, 0))).mapping


@given(small_rules() | st.sampled_from([preset.rule() for preset in presets.PRESETS.values()]), st.text(".x", max_size=12))
def test_any_rule_and_state_round_trip(rule, trace):
    """The rule and the state are equal bit for bit after a conversion to JSON text and back."""
    state = rule.init(like=np.zeros(()))
    for symbol in trace:
        state = rule.update(state, symbol == ".")
    saved = checkpoints.save("ampscale", Checkpoint(rule, state))
    loaded = checkpoints.load("ampscale", json.loads(json.dumps(saved.mapping, allow_nan=False)))
    assert loaded.rule == rule
    assert loaded.state == state
    assert [getattr(value, "dtype", None) for value in loaded.state] == [getattr(value, "dtype", None) for value in state]
    assert (saved.report.lossless, saved.report.dropped, saved.report.settings) == (True, {}, {})


def test_entries_have_the_documented_keys():
    """The mapping contains a name, a version, the rule's fields, and the state with its scales in hexadecimal."""
    assert list(PLAIN) == ["format", "version", "rule", "state"]
    assert (PLAIN["format"], PLAIN["version"]) == ("ampscale.scaler", 1)
    assert PLAIN["state"] == {"scale": "0x1.0000000000000p+16", "good_steps": 7, "bad_steps": 0}
    assert LossScaleRule.from_json(json.dumps(PLAIN["rule"])) == presets.torch()
    delayed = checkpoints.save("ampscale", Checkpoint(presets.mxnet(), LossScaleState(4.0, 0, 0, None, 8.0))).mapping
    assert delayed["state"]["pending_scale"] == "0x1.0000000000000p+3"
    tolerant = checkpoints.save("ampscale", Checkpoint(presets.fairseq_tolerance(), LossScaleState(4.0, 0, 1, 9))).mapping
    assert tolerant["state"]["window_steps"] == 9
    assert checkpoints.load("ampscale", tolerant).state.window_steps == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must have format 'ampscale.scaler' and version 1, got 'ampscale.scaler' and 2"),
        ({"format": "other"}, "must have format 'ampscale.scaler' and version 1, got 'other' and 1"),
        ({"rule": [1]}, "rule: a rule must be a JSON object"),
        ({"rule": {"growth": 2}}, "rule: the keys of a rule must be"),
        ({"rule": {"growth_factor": 0.5}}, "rule: growth_factor must be a finite number of at least 1"),
        ({"rule": {"growth_factor": "2"}}, "rule: growth_factor must be"),
        ({"state": 3}, "state must have the members"),
        ({"state": {**PLAIN["state"], "window_steps": 1}}, "state must have the members"),
        ({"state": {**PLAIN["state"], "scale": 65536.0}}, "state.scale must be a positive, finite float32 number in hexadecimal"),
        ({"state": {**PLAIN["state"], "scale": "inf"}}, "state.scale must be a positive, finite float32 number in hexadecimal"),
        ({"state": {**PLAIN["state"], "scale": "0x1p+99999"}}, "state.scale must be a positive, finite float32 number"),
        ({"state": {**PLAIN["state"], "scale": "0x1.00000001p+0"}}, "state.scale must be a positive, finite float32 number"),
        ({"state": {**PLAIN["state"], "good_steps": 2000}}, "finite steps must be from 0 to 1999"),
        ({"state": {**PLAIN["state"], "good_steps": 1.0}}, "state.good_steps must be an int"),
        ({"state": {**PLAIN["state"], "bad_steps": 1}}, "overflows must be from 0 to 0"),
        ({"extra": 1}, "there is no state of ampscale .* unknown"),
    ],
)
def test_invalid_entries_raise_a_value_error(change, message):
    with pytest.raises(ValueError, match=message):
        checkpoints.load("ampscale", {**PLAIN, **change})


def test_rule_must_equal_the_saved_rule():
    assert checkpoints.load("ampscale", PLAIN, presets.torch()).rule == presets.torch()
    with pytest.raises(ValueError, match="the rule must agree with the saved LossScaleRule"):
        checkpoints.load("ampscale", PLAIN, presets.paddle())


def test_settings_are_rejected():
    """The file contains the rule, so no settings are needed."""
    with pytest.raises(ValueError, match="the settings for ampscale must be empty"):
        checkpoints.load("ampscale", PLAIN, settings={"period": 3})
