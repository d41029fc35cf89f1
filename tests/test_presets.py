"""Presets: their descriptions and parameters. `presets/` compares them with the published scalers."""

import ast
import dataclasses
import inspect
from functools import partial

import numpy as np
import pytest
from errors import unexpected

from ampscale import LossScaleRule, presets
from ampscale.presets import TINY

EACH = pytest.mark.parametrize("preset", presets.PRESETS.values(), ids=presets.PRESETS)


@pytest.mark.clause("PRESETS-complete", "PRESETS-one-machine")
@EACH
def test_preset_is_a_rule_with_a_source(preset):
    """The source is a project, a version, a class and a file. The parameters are fields of the rule."""
    assert getattr(presets, preset.name) is preset.rule
    assert all((preset.project, preset.version, preset.class_name, preset.source_file))
    assert preset.summary.endswith(".")
    assert set(preset.parameters) <= {field.name for field in dataclasses.fields(LossScaleRule)}
    assert type(preset.rule()) is LossScaleRule


@pytest.mark.clause("PRESETS-own-words")
@EACH
def test_parameter_sets_the_field_of_its_name(preset):
    """A growth factor also sets the backoff factor of a scaler with one factor. Two parameters set a field of another name."""
    default = dataclasses.asdict(preset.rule())
    values = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 7, "hysteresis": 3}
    values |= {"min_scale": 0.5, "max_scale": 2.0**40, "overflow_tolerance": 0.125, "raise_at_or_below": 0.5}
    values["raise_at_min_scale"] = False
    other_fields = {("chainer", "growth_interval"): "growth_factor", ("fairseq2", "min_scale"): "raise_at_or_below"}
    for name in preset.parameters:
        rule = dataclasses.asdict(preset.rule(**{name: values[name]}))
        changed = {key for key, value in rule.items() if value != default[key]}
        implied = {"backoff_factor"} - set(preset.parameters) if name == "growth_factor" else set()
        assert changed == {other_fields.get((preset.name, name), name)} | implied


@pytest.mark.clause("PRESETS-complete")
def test_presets_are_in_the_order_of_the_module():
    functions = [node for node in ast.parse(inspect.getsource(presets)).body if isinstance(node, ast.FunctionDef)]
    rules = [node.name for node in functions if ast.unparse(node.returns) == "LossScaleRule" and not node.name.startswith("_")]
    assert list(presets.PRESETS) == rules


@EACH
def test_invalid_setting_raises(preset):
    """The error names the setting. Bounds may be None, a flag may be True, and flax accepts an interval of 0."""
    valid = {(name, None) for name in ("min_scale", "max_scale", "raise_at_or_below")} | {("raise_at_min_scale", True)}
    if preset.name == "flax":
        valid.add(("growth_interval", 0))
    cases = [
        ((name, value), partial(preset.rule, **{name: value}), (TypeError, ValueError), f"^{name} must be")
        for name in preset.parameters
        for value in (0, -1.0, float("nan"), float("inf"), "2", None, (2,), True)
        if (name, value) not in valid
    ]
    assert unexpected(cases) == []


@pytest.mark.clause("PRESETS-fairseq2")
@pytest.mark.parametrize("minimum", [TINY, 2.0**-120, 1e-4, 16.0, 0.1])
def test_fairseq2_raises_below_its_minimum_only(minimum):
    """The threshold of the rule is the largest float32 below the minimum, also at the smallest normal number."""
    rounded = np.float32(minimum)
    expected = rounded if float(rounded) < minimum else np.nextafter(rounded, np.float32(0))
    assert presets.fairseq2(min_scale=minimum).raise_at_or_below == expected
