"""Published scalers as constants, and the runs that tell them apart."""

import ast
import dataclasses
import inspect

import numpy as np
import pytest

from ampscale import LossScaleRule, presets


def scales(rule, steps):
    """The scales that a rule passes through: a plus is a finite step, a minus an overflow."""
    state = rule.init()
    passed = [float(state.scale)]
    for step in steps:
        state = rule.update(state, step == "+")
        passed.append(float(state.scale))
    return passed


@pytest.mark.clause("MACHINE-static")
@pytest.mark.parametrize("init", [1.0, 128.0, 3.7])
def test_a_static_scale_never_moves(init):
    """Neither finite steps nor overflows move it, however many."""
    assert len(set(scales(presets.static(init), "+-" * 2500))) == 1


def test_mindspore_divides_by_the_factor_and_stops_at_1():
    """Its scaler divides 10 by 3, and no backoff goes below 1."""
    rule = presets.mindspore(10.0, 3, 2)
    assert scales(rule, "-")[-1] == float(np.float32(10) / np.float32(3))
    assert scales(rule, "----")[-1] == 1
    assert scales(rule, "++") == [10, 10, 30]


def test_mindspore_keeps_a_scale_that_cannot_grow():
    """Its scaler checks a growth; its update cell and its manager do not."""
    assert scales(presets.mindspore(2.0**127, 2, 1), "+")[-1] == 2.0**127
    assert scales(presets.mindspore_update_cell(2.0**127, 2, 1), "+")[-1] == np.inf


def test_the_update_cell_multiplies_by_the_reciprocal():
    """Ten times a third is not ten divided by three, in float32."""
    rule = presets.mindspore_update_cell(10.0, 3, 2)
    assert scales(rule, "-")[-1] == float(np.float32(10) * np.float32(1 / 3))
    assert scales(rule, "----")[-1] == 1


def test_the_manager_counts_in_float64():
    """It begins at 2**24, doubles after 2000 steps, and can hold what float32 cannot."""
    rule = presets.mindspore_manager()
    assert scales(rule, "+" * 2000)[-2:] == [2.0**24, 2.0**25]
    assert scales(presets.mindspore_manager(2.0**127, 2, 1), "+")[-1] == 2.0**128
    assert scales(presets.mindspore_manager(1.1 + 2.2, 2, 1), "")[0] == 1.1 + 2.2


def test_paddle_by_its_document_adds_overflows_up():
    """A finite step between two overflows is no pardon; a growth is, and a thousand steps make one."""
    rule = presets.paddle_document()
    assert scales(rule, "-+-") == [32768, 32768, 32768, 16384]
    assert scales(rule, "+" * 1000)[-2:] == [32768, 65536]
    assert scales(dataclasses.replace(rule, growth_interval=2), "-++-") == [32768, 32768, 32768, 65536, 65536]


def test_paddle_by_its_code_backs_off_at_once():
    """Today's defaults: 65536, 2000 steps to grow, and each overflow halves."""
    rule = presets.paddle()
    assert scales(rule, "-+-") == [65536, 32768, 32768, 16384]
    assert scales(rule, "+" * 2000)[-2:] == [65536, 131072]


def test_paddle_by_its_code_forgets_overflows():
    """With a patience of two, a finite step between two overflows is a pardon."""
    assert scales(dataclasses.replace(presets.paddle(), hysteresis=2), "-+--") == [65536] * 4 + [32768]


@pytest.mark.clause("PRESETS-complete")
@pytest.mark.parametrize("preset", presets.PRESETS.values(), ids=presets.PRESETS)
def test_a_preset_says_whose_it_is(preset):
    """Its name is its function's; project, version, class, file and a sentence are there; all parameters have defaults."""
    assert getattr(presets, preset.name) is preset.rule
    assert all((preset.project, preset.version, preset.what, preset.where))
    assert preset.summary.endswith(".")
    assert set(preset.parameters) <= {field.name for field in dataclasses.fields(LossScaleRule)}
    assert type(preset.rule()) is LossScaleRule


@pytest.mark.clause("PRESETS-own-words")
@pytest.mark.parametrize("preset", presets.PRESETS.values(), ids=presets.PRESETS)
def test_a_parameter_sets_what_it_is_called(preset):
    """Each changes its own field, and a factor its reciprocal too where the scaler has but one; two change what they mean."""
    default = dataclasses.asdict(preset.rule())
    other = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 7, "hysteresis": 3}
    other |= {"min_scale": 0.5, "max_scale": 2.0**40, "rate": 0.125, "stop_below": 0.5, "stop_at_floor": False}
    meant = {("chainer", "growth_interval"): "growth_factor", ("fairseq2", "min_scale"): "stop_below"}
    for name in preset.parameters:
        rule = dataclasses.asdict(preset.rule(**{name: other[name]}))
        changed = {key for key, value in rule.items() if value != default[key]}
        along = {"backoff_factor"} - set(preset.parameters) if name == "growth_factor" else set()
        assert changed == {meant.get((preset.name, name), name)} | along


@pytest.mark.clause("PRESETS-complete")
def test_presets_stand_in_the_order_of_the_page():
    """PRESETS is the page's table of contents."""
    functions = [node for node in ast.parse(inspect.getsource(presets)).body if isinstance(node, ast.FunctionDef)]
    rules = [each.name for each in functions if ast.unparse(each.returns) == "LossScaleRule" and not each.name.startswith("_")]
    assert list(presets.PRESETS) == rules


@pytest.mark.clause("PRESETS-one-machine")
@pytest.mark.parametrize("preset", presets.PRESETS.values(), ids=presets.PRESETS)
def test_a_preset_is_constants_and_nothing_else(preset):
    """It is a rule and no heir of it, equal to one made of its fields, and of what goes through JSON."""
    rule = preset.rule()
    assert type(rule) is LossScaleRule
    assert rule == LossScaleRule(**dataclasses.asdict(rule)) == LossScaleRule.from_json(rule.to_json())


def test_a_preset_refuses_what_a_rule_refuses():
    """Bad constants are refused by the rule itself."""
    with pytest.raises(ValueError, match=r"^init_scale must be"):
        presets.static(0.0)
    with pytest.raises(ValueError, match=r"^growth_interval must be"):
        presets.mindspore(2.0, 2, 0)


@pytest.mark.parametrize("preset", presets.PRESETS.values(), ids=presets.PRESETS)
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "2", None, [2], True], ids=repr)
def test_a_preset_refuses_what_no_scaler_can_take(preset, value):
    """Each wrong setting is a TypeError or a ValueError that names it, save None for a bound and a bool for a flag."""
    for name in preset.parameters:
        fine = (name == "stop_at_floor" and value is True) or (value is None and name in ("min_scale", "max_scale", "stop_below"))
        fine |= (preset.name, name, value) == ("flax", "growth_interval", 0)
        if not fine:
            with pytest.raises((TypeError, ValueError), match=rf"^{name} must be"):
                preset.rule(**{name: value})
