"""Rules that an implementation supports: those of its preset or rule, with the constants that can be set."""

from dataclasses import fields

import pytest
from ampscale_conformance.model.adapter import Unsupported
from ampscale_conformance.model.supported_rules import SMALL, supported_rules

from ampscale import LossScaleRule
from ampscale.presets import PRESETS


def test_a_preset_supports_its_parameters_only():
    """The initial scale is small, and other constants are the preset's own. Fields that are not parameters are unsupported."""
    for name, preset in PRESETS.items():
        supported = supported_rules(name)
        rule = supported.rule()
        assert rule == preset.rule(init_scale=rule.init_scale)
        assert 2.0**-20 < rule.init_scale <= 2.0**24
        assert supported.parameters == frozenset(preset.parameters)
        for field in {field.name for field in fields(LossScaleRule)} - set(preset.parameters):
            with pytest.raises(Unsupported, match=f"{name} has no {field} to set"):
                supported.rule(**{field: 1})
    settings = {"growth_interval": 3, "hysteresis": 2, "init_scale": 64.0}
    assert supported_rules("paddle").rule(**settings) == PRESETS["paddle"].rule(**settings)


def test_all_missing_constants_are_named():
    """One message names all of them."""
    with pytest.raises(Unsupported, match="torch has no hysteresis and no min_scale to set"):
        supported_rules("torch").rule(min_scale=1.0, hysteresis=2, growth_interval=3)


def test_invalid_combinations_are_unsupported():
    """A case with these settings does not apply to the implementation, and does not fail."""
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
    ids=str,
)
def test_the_initial_scale_is_within_the_bounds(settings, start):
    """If no initial scale is given, it is `SMALL`, or the bound nearest to `SMALL` if the bounds exclude `SMALL`."""
    assert supported_rules("colossalai").rule(**settings).init_scale == start


def test_a_rule_supports_the_common_constants():
    """The constants are the four that every scaler has, and the optional constants that the rule sets."""
    plain = supported_rules(LossScaleRule())
    assert plain.parameters == {"init_scale", "growth_factor", "backoff_factor", "growth_interval"}
    bounded = supported_rules(LossScaleRule(min_scale=1.0, hysteresis=2))
    assert bounded.parameters == plain.parameters | {"min_scale", "hysteresis"}


def test_a_rule_keeps_its_variant_fields():
    """Variant fields cannot be set."""
    claimed = LossScaleRule(initial_good_steps=-1, delayed_update=True, max_scale=2.0**20, reset_bad_steps_on=("growth",))
    rule = supported_rules(claimed).rule(growth_interval=5, max_scale=2.0**8)
    assert (rule.initial_good_steps, rule.delayed_update, rule.reset_bad_steps_on) == (-1, True, ("growth",))
    assert (rule.growth_interval, rule.max_scale, rule.init_scale) == (5, 2.0**8, 2.0**8)


def test_a_static_scale_supports_its_initial_value_only():
    """A static scale has no factors and no interval to set."""
    supported = supported_rules(LossScaleRule(growth_factor=1.0, backoff_factor=1.0))
    assert supported.parameters == {"init_scale"}
    assert supported.rule(init_scale=8.0).init_scale == 8.0
    with pytest.raises(Unsupported, match="the rule has no growth_interval to set"):
        supported.rule(growth_interval=2)
