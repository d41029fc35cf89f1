"""Every preset beside a plain loop of the scaler that it reproduces: over all patterns, at the edges, and by default."""

import inspect

import numpy as np
import pytest
from presets.patterns import STEPS, differing, of_loop, of_rule
from presets.published import PUBLISHED
from presets.scaler import GIVEN

from ampscale import presets


def test_every_preset_has_a_loop():
    """And every loop has a preset."""
    assert sorted(PUBLISHED) == sorted(presets.PRESETS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_settings_and_defaults_of_its_scaler(name):
    """Called with nothing, it goes where the loop goes with its own defaults, around the first growth and through overflows."""
    rule, published = presets.PRESETS[name].rule(), PUBLISHED[name]
    defaults = {field: value.default for field, value in inspect.signature(presets.PRESETS[name].rule).parameters.items()}
    expected = {field: None if value == np.inf else value for field, value in published.default_of.items()}  # no cap
    assert set(presets.PRESETS[name].parameters) == set(defaults) == set(expected)
    assert {field: defaults[field] for field, value in expected.items() if value is not GIVEN} == {
        field: value for field, value in expected.items() if value is not GIVEN
    }
    state, loop = rule.init(), published.new({field: defaults[field] for field, value in expected.items() if value is GIVEN})
    quiet = max(0, rule.growth_interval - 4)
    for _ in range(quiet):
        loop, scale = loop.after(finite=True)
        assert scale == state.scale
    state = state._replace(
        good_steps=state.good_steps + quiet, window_steps=None if rule.overflow_tolerance is None else state.window_steps + quiet
    )
    for step in "......xx.xxx.":
        assert not rule.would_raise(state, step == ".")
        state = rule.update(state, step == ".")
        loop, scale = loop.after(step == ".")
        assert state.scale == scale


@pytest.mark.clause(
    "MACHINE-growth-window", "MACHINE-backoff", "MACHINE-hysteresis", "MACHINE-overflow-resets",
    "MACHINE-reset-bad-steps", "MACHINE-initial-good-steps", "MACHINE-skip-infinite-growth", "MACHINE-min-scale",
    "MACHINE-max-scale", "MACHINE-arithmetic", "MACHINE-float64-factor", "MACHINE-divide-on-backoff",
    "MACHINE-warmup-growth-factor", "MACHINE-block-at-bounds", "MACHINE-overflow-tolerance", "MACHINE-would-raise",
    "MACHINE-delayed-update",
)  # fmt: skip
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_equals_its_scaler(name):
    """Under every setting and along all 1024 patterns of ten steps, each scale is the loop's to the bit, and so is each stop."""
    for setting in PUBLISHED[name].settings():
        rule, loop = presets.PRESETS[name].rule(**setting), PUBLISHED[name].new(setting)
        expected, seen = of_loop(loop, rule.init().scale[()]), of_rule(rule)
        assert [level.scale.dtype for level in seen] == [level.scale.dtype for level in expected], setting
        assert [differing([one], [other]) for one, other in zip(expected, seen, strict=True)] == [0] * STEPS, setting
