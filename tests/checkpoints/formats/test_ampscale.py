"""Our own format holds every rule and every state, reads back exactly, and takes nothing else."""

import json

import numpy as np
import pytest
from checkpoints.test_divergence import small_rules
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.checkpoints import Checkpoint
from ampscale.core.machine import LossScaleState

PLAIN = checkpoints.save("ampscale", Checkpoint(presets.torch(), LossScaleState(2.0**16, 7, 0))).mapping


@given(small_rules() | st.sampled_from([preset.rule() for preset in presets.PRESETS.values()]), st.text(".x", max_size=12))
def test_any_rule_and_state_are_read_back(rule, trace):
    """Through JSON and back: the same rule, first scale included, and the same state, bit for bit."""
    state = rule.init(like=np.zeros(()))
    for symbol in trace:
        state = rule.update(state, symbol == ".")
    saved = checkpoints.save("ampscale", Checkpoint(rule, state))
    found = checkpoints.load("ampscale", json.loads(json.dumps(saved.mapping, allow_nan=False)))
    assert found.rule == rule
    assert found.state == state
    assert [getattr(value, "dtype", None) for value in found.state] == [getattr(value, "dtype", None) for value in state]
    assert (saved.report.lossless, saved.report.dropped, saved.report.settings) == (True, {}, {})


def test_what_it_looks_like():
    """A name, a version, the rule's fields, and the state with its scale in hexadecimal."""
    assert list(PLAIN) == ["format", "version", "rule", "state"]
    assert (PLAIN["format"], PLAIN["version"]) == ("ampscale.scaler", 1)
    assert PLAIN["state"] == {"scale": "0x1.0000000000000p+16", "good_steps": 7, "bad_steps": 0}
    assert LossScaleRule.from_json(json.dumps(PLAIN["rule"])) == presets.torch()
    lagging = checkpoints.save("ampscale", Checkpoint(presets.mxnet(), LossScaleState(4.0, 0, 0, None, 8.0))).mapping
    assert lagging["state"]["pending_scale"] == "0x1.0000000000000p+3"
    rated = checkpoints.save("ampscale", Checkpoint(presets.fairseq_tolerance(), LossScaleState(4.0, 0, 1, 9))).mapping
    assert rated["state"]["window_steps"] == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must be of format 'ampscale.scaler' and version 1, got 'ampscale.scaler' and 2"),
        ({"format": "other"}, "must be of format 'ampscale.scaler' and version 1, got 'other' and 1"),
        ({"rule": [1]}, "rule: a rule must be a JSON object"),
        ({"rule": {"growth": 2}}, "rule: a rule must have none but the members"),
        ({"rule": {"growth_factor": 0.5}}, "rule: growth_factor must be a number of at least 1"),
        ({"rule": {"growth_factor": "2"}}, "rule: growth_factor must be"),
        ({"state": 3}, "state must have the members"),
        ({"state": {**PLAIN["state"], "window_steps": 1}}, "state must have the members"),
        ({"state": {**PLAIN["state"], "scale": 65536.0}}, "state.scale must be a positive, finite number in hexadecimal"),
        ({"state": {**PLAIN["state"], "scale": "inf"}}, "state.scale must be a positive, finite number in hexadecimal"),
        ({"state": {**PLAIN["state"], "scale": "0x1p+99999"}}, "state.scale must be a positive, finite number in hexadecimal"),
        ({"state": {**PLAIN["state"], "scale": "0x1.00000001p+0"}}, "state.scale must be a positive, finite number"),
        ({"state": {**PLAIN["state"], "good_steps": 2000}}, "finite steps must be from 0 to 1999"),
        ({"state": {**PLAIN["state"], "good_steps": 1.0}}, "state.good_steps must be an int"),
        ({"state": {**PLAIN["state"], "bad_steps": 1}}, "overflows must be from 0 to 0"),
        ({"extra": 1}, "there is no state of ampscale .* unknown"),
    ],
)
def test_anything_else_is_refused(change, message):
    """Other versions, other members, and values that no run has."""
    with pytest.raises(ValueError, match=message):
        checkpoints.load("ampscale", {**PLAIN, **change})


def test_a_rule_must_be_the_one_in_the_file():
    """It may be given, and is then compared; there are no settings beside it."""
    assert checkpoints.load("ampscale", PLAIN, presets.torch()).rule == presets.torch()
    with pytest.raises(ValueError, match="the rule must agree with what ampscale saved"):
        checkpoints.load("ampscale", PLAIN, presets.paddle())
    with pytest.raises(ValueError, match="settings of ampscale must be some of"):
        checkpoints.load("ampscale", PLAIN, settings={"period": 3})
