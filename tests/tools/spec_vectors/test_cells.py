"""Tests of `spec_vectors.cells.outputs_of` with inputs that no test vector has."""

import pytest
from ampscale_conformance.oracle.tensors import array
from spec_vectors.cells import outputs_of


def run(chapter, cell, gradients, *, parameters=(4.0,), dtype="float32", rate=0.5, **fields):
    """Call a cell once with each gradient of its only parameter, and return the outputs of the calls."""
    case = {
        "cell": cell,
        "parameters": [array(dtype, list(parameters)).to_json()],
        "gradients": [[array("float32", list(gradient)).to_json()] for gradient in gradients],
        "optimizer": {"name": "SGD", "learning_rate": float(rate).hex()},
        **fields,
    }
    return outputs_of(chapter, case)


def values(outputs, name):
    """Return the output *name* of each call."""
    return [output[name] for output in outputs]


def encoded(values, dtype="float32"):
    """Return each number as an encoded array of shape ()."""
    return [array(dtype, value).to_json() for value in values]


def test_three_micro_batches_are_one_step():
    """The third call applies the mean, updates the scale and returns a global norm. Every call returns its local norm."""
    cell = {"class": "DynamicLossScaleUpdateCell", "arguments": {"loss_scale_value": 8, "scale_factor": 2, "scale_window": 1}}
    settings = {"gradient_accumulation_steps": 3, "use_clip_grad": True, "max_grad_norm": (2.0**20).hex(), "local_norm": True}
    outputs = run("mindformers", "MFTrainOneStepCell", [[1.0], [3.0], [8.0], [1.0]], scale_sense=cell, arguments=settings)
    assert values(outputs, "loss_scale") == encoded([8, 8, 16, 16])
    assert values(outputs, "global_norm") == [None, None, array("float32", 4.0).to_json(), None]
    assert values(outputs, "local_norm") == [array("float32", [norm]).to_json() for norm in (1, 3, 4, 1)]
    assert values(outputs, "parameters") == [[array("float32", [value]).to_json()] for value in (4, 4, 2, 2)]
    assert values(outputs, "size") == [array("int64", [1]).to_json()] * 4


@pytest.mark.parametrize(("enable", "applied", "parameter"), [(True, False, 4.0), (False, True, float("-inf"))])
def test_disabled_scaler_does_not_check_gradients(enable, applied, parameter):
    """If disabled, it applies the optimizer to a non-finite gradient, with a scale of 1; if enabled, it skips the step."""
    (outputs,) = run("paddle", "GradScaler", [[float("inf")]], arguments={"enable": enable})
    assert outputs["scale"] == array("float32", 32768.0 if enable else 1.0).to_json()
    assert outputs["applied"] is applied
    assert outputs["parameters"] == [array("float32", [parameter]).to_json()]


def test_train_step_returns_a_norm_only_if_it_clips():
    """The norm of float64 gradients is a float64 array."""
    rule = {"init_scale": (8.0).hex()}
    plain, clipped = (
        run("step", "train_step", [[3.0, 4.0]], parameters=(0.0, 0.0), dtype="float64", rule=rule, **limit)[0]
        for limit in ({}, {"max_norm": (1.0).hex()})
    )
    assert plain["global_norm"] is None
    assert clipped["global_norm"] == array("float64", 5.0).to_json()
