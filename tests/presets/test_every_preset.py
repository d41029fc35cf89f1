"""Every preset equals a plain loop of its scaler, over all overflow traces and for ordinary and extreme settings."""

import inspect

import numpy as np
import pytest
from presets.patterns import differing, tree_of_loop, tree_of_rule
from presets.published import PUBLISHED
from presets.scaler import REQUIRED

from ampscale import presets


def test_every_preset_has_a_loop():
    """Every loop has a preset, too."""
    assert sorted(PUBLISHED) == sorted(presets.PRESETS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_preset_has_the_settings_and_defaults_of_its_scaler(name):
    """The preset and the loop, both with their defaults, have equal scales around the first growth and through overflows."""
    preset, published = presets.PRESETS[name], PUBLISHED[name]
    defaults = {field: parameter.default for field, parameter in inspect.signature(preset.rule).parameters.items()}
    expected = {field: None if value == np.inf else value for field, value in published.defaults_by_field.items()}  # unbounded
    required = {field: defaults[field] for field, value in expected.items() if value is REQUIRED}
    assert defaults == expected | required
    rule = preset.rule()
    state, loop = rule.init(), published.new_loop(required)
    finite_steps = max(0, rule.growth_interval - 4)
    for _ in range(finite_steps):
        loop, scale = loop.after(finite=True)
        assert scale == state.scale
    state = state._replace(
        good_steps=state.good_steps + finite_steps,
        window_steps=None if rule.overflow_tolerance is None else state.window_steps + finite_steps,
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
def test_preset_equals_its_scaler(name):
    """For every setting and all 1024 traces of ten steps, the rule and the loop have the same errors and bitwise equal scales."""
    for setting in PUBLISHED[name].settings():
        rule = presets.PRESETS[name].rule(**setting)
        loop = PUBLISHED[name].new_loop(setting)
        expected = tree_of_loop(loop, rule.init().scale[()])
        actual = tree_of_rule(rule)
        assert [level.scale.dtype for level in actual] == [level.scale.dtype for level in expected], setting
        assert differing(expected, actual) == 0, setting
