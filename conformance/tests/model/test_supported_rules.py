"""The rules that an implementation may be given: what it claims, with the constants that it lets one set."""

from dataclasses import fields

import pytest
from ampscale_conformance.model.adapter import Unsupported
from ampscale_conformance.model.supported_rules import SMALL, supported_rules

from ampscale import LossScaleRule
from ampscale.presets import PRESETS


def test_a_preset_is_its_own_rule():
    """With a small first scale, else with its own constants; each field is a parameter and is set, or is unsupported."""
    for name, preset in PRESETS.items():
        family = supported_rules(name)
        rule = family.rule()
        assert rule == preset.rule(init_scale=rule.init_scale)
        assert 2.0**-20 < rule.init_scale <= 2.0**24
        assert family.parameters == frozenset(preset.parameters)
        for field in {field.name for field in fields(LossScaleRule)} - set(preset.parameters):
            with pytest.raises(Unsupported, match=f"{name} has no {field} to set"):
                family.rule(**{field: 1})
    settings = {"growth_interval": 3, "hysteresis": 2, "init_scale": 64.0}
    assert supported_rules("paddle").rule(**settings) == PRESETS["paddle"].rule(**settings)


def test_all_missing_settings_are_named():
    """In one message."""
    with pytest.raises(Unsupported, match="torch has no hysteresis and no min_scale to set"):
        supported_rules("torch").rule(min_scale=1.0, hysteresis=2, growth_interval=3)


def test_constants_that_do_not_go_together_are_unsupported():
    """The case cannot be put to this implementation; it is no failure."""
    with pytest.raises(Unsupported, match=r"apex does not allow these settings: .*min_scale"):
        supported_rules("apex").rule(min_scale=8.0, max_scale=4.0)
    with pytest.raises(Unsupported, match="apex does not allow these settings: "):
        supported_rules("apex").rule(min_scale=8.0, init_scale=4.0)


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({}, SMALL),
        ({"min_scale": 2.0**12}, 2.0**12),
        ({"max_scale": 4.0}, 4.0),
        ({"min_scale": 1.0, "max_scale": 2.0**12}, SMALL),
        ({"min_scale": 2.0, "max_scale": 4.0}, 4.0),
        ({"init_scale": 3.0}, 3.0),
    ],
)
def test_the_first_scale_lies_within_the_bounds(settings, start):
    """It is small unless it is said, and small where the bounds allow it."""
    assert supported_rules("colossalai").rule(**settings).init_scale == start


def test_a_rule_takes_the_common_constants():
    """The four that every scaler has, and of the others those that it has itself."""
    plain = supported_rules(LossScaleRule())
    assert plain.parameters == {"init_scale", "growth_factor", "backoff_factor", "growth_interval"}
    bounded = supported_rules(LossScaleRule(min_scale=1.0, hysteresis=2))
    assert bounded.parameters == plain.parameters | {"min_scale", "hysteresis"}


def test_a_rule_keeps_what_makes_it_its_own():
    """Dialects are no settings."""
    own = LossScaleRule(initial_good_steps=-1, delayed_update=True, max_scale=2.0**20, reset_bad_steps_on=("growth",))
    rule = supported_rules(own).rule(growth_interval=5, max_scale=2.0**8)
    assert (rule.initial_good_steps, rule.delayed_update, rule.reset_bad_steps_on) == (-1, True, ("growth",))
    assert (rule.growth_interval, rule.max_scale, rule.init_scale) == (5, 2.0**8, 2.0**8)


def test_a_scale_that_stays_has_a_start_alone():
    """It has no factors to set."""
    family = supported_rules(LossScaleRule(growth_factor=1.0, backoff_factor=1.0))
    assert family.parameters == {"init_scale"}
    assert family.rule(init_scale=8.0).init_scale == 8.0
    with pytest.raises(Unsupported, match="the rule has no growth_interval to set"):
        family.rule(growth_interval=2)
