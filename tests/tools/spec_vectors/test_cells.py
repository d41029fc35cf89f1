"""The documented cells, where the vectors do not go."""

import pytest
from ampscale_conformance.oracle.tensors import array
from spec_vectors.cells import outputs_of

INFINITE = [float("inf")]


def run(chapter, cell, gradients, *, parameters=(4.0,), dtype="float32", rate=0.5, **fields):
    """Every output of a call a gradient, over one parameter."""
    case = {
        "cell": cell,
        "parameters": [array(dtype, list(parameters)).to_json()],
        "gradients": [[array("float32", list(gradient)).to_json()] for gradient in gradients],
        "optimizer": {"name": "SGD", "learning_rate": float(rate).hex()},
        **fields,
    }
    return outputs_of(chapter, case)


def values(outputs, name):
    """One output of all calls."""
    return [output[name] for output in outputs]


def written(values, dtype="float32"):
    """Each number as an array of shape ()."""
    return [array(dtype, value).to_json() for value in values]


def test_three_micro_batches_are_one_step():
    """Their mean is applied in the third call, which alone moves the scale and has a norm; each has its own local norm."""
    cell = {"class": "DynamicLossScaleUpdateCell", "arguments": {"loss_scale_value": 8, "scale_factor": 2, "scale_window": 1}}
    given = {"gradient_accumulation_steps": 3, "use_clip_grad": True, "max_grad_norm": (2.0**20).hex(), "local_norm": True}
    outputs = run("mindformers", "MFTrainOneStepCell", [[1.0], [3.0], [8.0], [1.0]], scale_sense=cell, arguments=given)
    assert values(outputs, "loss_scale") == written([8, 8, 16, 16])
    assert values(outputs, "global_norm") == [None, None, array("float32", 4.0).to_json(), None]
    assert values(outputs, "local_norm") == [array("float32", [norm]).to_json() for norm in (1, 3, 4, 1)]
    assert values(outputs, "parameters") == [[array("float32", [value]).to_json()] for value in (4, 4, 2, 2)]
    assert values(outputs, "size") == [array("int64", [1]).to_json()] * 4


def test_one_bad_micro_batch_skips_all():
    """It tells its own overflow, and the last one tells the step's; the step after it is not hurt."""
    given = {"gradient_accumulation_steps": 2, "ema_decay": (0.5).hex()}
    outputs = run("mindformers", "MFTrainOneStepCell", [INFINITE, [1.0], [1.0], [3.0]], arguments=given)
    assert values(outputs, "overflow") == [True, True, False, False]
    assert values(outputs, "parameters") == [[array("float32", [value]).to_json()] for value in (4, 4, 4, 3)]
    assert values(outputs, "ema_params") == [[array("float32", [value]).to_json()] for value in (4, 4, 4, 3.5)]


def test_an_array_is_a_fixed_scale_in_its_own_dtype_and_shape():
    """Overflows skip the step all the same."""
    sense = array("float64", [8.0]).to_json()
    outputs = run("mindspore", "TrainOneStepWithLossScaleCell", [INFINITE, [1.0]], scale_sense=sense)
    assert values(outputs, "loss_scale") == [sense, sense]
    assert values(outputs, "overflow") == [True, False]
    assert values(outputs, "parameters") == [[array("float32", [value]).to_json()] for value in (4, 3.5)]


@pytest.mark.parametrize(("enable", "applied", "after"), [(True, False, 4.0), (False, True, float("-inf"))])
def test_a_scaler_that_is_off_looks_at_nothing(enable, applied, after):
    """The optimizer is run as it is found."""
    (outputs,) = run("paddle", "GradScaler", [INFINITE], arguments={"enable": enable})
    assert outputs["applied"] is applied
    assert outputs["parameters"] == [array("float32", [after]).to_json()]


def test_a_train_step_has_a_norm_where_it_clips():
    """In the dtype of the norm, and none elsewhere."""
    rule = {"init_scale": (8.0).hex()}
    plain, clipped = (
        run("step", "train_step", [[3.0, 4.0]], parameters=(0.0, 0.0), dtype="float64", rule=rule, **limit)[0]
        for limit in ({}, {"max_norm": (1.0).hex()})
    )
    assert plain["global_norm"] is None
    assert clipped["global_norm"] == array("float64", 5.0).to_json()


def test_another_cell_is_unknown():
    """There are four."""
    with pytest.raises(KeyError):
        run("step", "OtherCell", [[1.0]])
