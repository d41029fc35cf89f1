"""Tests of the documented cells, for inputs that the vectors do not have."""

import pytest
from ampscale_conformance.oracle.tensors import array
from spec_vectors.cells import outputs_of

INFINITE = [float("inf")]


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


def test_overflow_in_one_micro_batch_skips_the_step():
    """The call with the overflow and the last call of the step report it. The next step is applied."""
    settings = {"gradient_accumulation_steps": 2, "ema_decay": (0.5).hex()}
    outputs = run("mindformers", "MFTrainOneStepCell", [INFINITE, [1.0], [1.0], [3.0]], arguments=settings)
    assert values(outputs, "overflow") == [True, True, False, False]
    assert values(outputs, "parameters") == [[array("float32", [value]).to_json()] for value in (4, 4, 4, 3)]
    assert values(outputs, "ema_params") == [[array("float32", [value]).to_json()] for value in (4, 4, 4, 3.5)]


def test_array_is_a_constant_scale():
    """The returned scale has the array's dtype and shape, and an overflow skips the step."""
    sense = array("float64", [8.0]).to_json()
    outputs = run("mindspore", "TrainOneStepWithLossScaleCell", [INFINITE, [1.0]], scale_sense=sense)
    assert values(outputs, "loss_scale") == [sense, sense]
    assert values(outputs, "overflow") == [True, False]
    assert values(outputs, "parameters") == [[array("float32", [value]).to_json()] for value in (4, 3.5)]


@pytest.mark.parametrize(("enable", "applied", "parameter"), [(True, False, 4.0), (False, True, float("-inf"))])
def test_disabled_scaler_does_not_check_gradients(enable, applied, parameter):
    """If disabled, it applies the optimizer to a non-finite gradient; if enabled, it skips the step."""
    (outputs,) = run("paddle", "GradScaler", [INFINITE], arguments={"enable": enable})
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


def test_unknown_cell_raises_a_key_error():
    """The name must be that of one of the four documented cells."""
    with pytest.raises(KeyError):
        run("step", "OtherCell", [[1.0]])
