"""Recorded runs of the real frameworks are reproduced bit for bit."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from strategies import alike
from vectors import array

import ampscale

RECORDED = Path(__file__).parent / "recorded"


def runs(framework, kind):
    """Return the recorded runs of a class or function; there is at least one."""
    recorded = json.loads((RECORDED / f"{framework}.json").read_text())[kind]
    assert recorded
    return recorded


def floats(scales):
    return [float.fromhex(scale) for scale in scales]


def arrays(vectors):
    return [array(vector) for vector in vectors]


def all_same(actual, expected):
    return len(actual) == len(expected) and all(map(alike, actual, expected))


def test_dynamic_loss_scaler_reproduces_runs_of_mindspore():
    """The scale and the counter are compared after each call of `adjust`."""
    for run in runs("mindspore", "DynamicLossScaler"):
        init_scale, factor, window = run["arguments"]
        scaler = ampscale.DynamicLossScaler(float.fromhex(init_scale), factor, window)
        observed = []
        for step in run["steps"]:
            scaler.adjust(np.asarray(step == "F"))
            observed.append((float(scaler.scale_value), int(scaler.counter)))
        assert observed == list(zip(floats(run["scale"]), run["counter"], strict=True))


def test_dynamic_loss_scale_update_cell_reproduces_runs_of_mindspore():
    """The scale and both counters are compared after each call."""
    for run in runs("mindspore", "DynamicLossScaleUpdateCell"):
        init_scale, factor, window = run["arguments"]
        cell = ampscale.DynamicLossScaleUpdateCell(float.fromhex(init_scale), factor, window)
        scale = np.asarray(cell.get_loss_scale(), np.float32)
        observed = []
        for step in run["steps"]:
            cell(scale, np.asarray(step == "O"))
            observed.append((float(scale), cell.cur_iter, cell.last_overflow_iter))
        assert observed == list(zip(floats(run["scale"]), run["cur_iter"], run["last_overflow_iter"], strict=True))


def test_dynamic_loss_scale_manager_reproduces_runs_of_mindspore():
    """The float64 scale is compared after each update."""
    for run in runs("mindspore", "DynamicLossScaleManager"):
        init_scale, factor, window = run["arguments"]
        manager = ampscale.DynamicLossScaleManager(float.fromhex(init_scale), factor, window)
        observed = []
        for step in run["steps"]:
            manager.update_loss_scale(step == "O")
            observed.append(manager.get_loss_scale())
        assert observed == floats(run["scale"])


def test_scale_and_unscale_reproduce_arrays_of_mindspore():
    """Arrays of four dtypes are multiplied and divided by powers of two."""
    for run in runs("mindspore", "scale and unscale"):
        scaler = ampscale.StaticLossScaler(float.fromhex(run["scale"]))
        assert alike(getattr(scaler, run["op"])(array(run["input"])), array(run["output"]))


def test_train_one_step_with_loss_scale_cell_reproduces_runs_of_mindspore():
    """Losses, overflows, scales, gradients and float32 parameters are compared."""
    for run in runs("mindspore", "TrainOneStepWithLossScaleCell"):
        replay(run, ampscale.TrainOneStepWithLossScaleCell)


def test_mf_train_one_step_cell_reproduces_runs_of_mindformers():
    """Learning rates and norms are compared, in addition to the values that the MindSpore cell returns."""
    for run in runs("mindformers", "MFTrainOneStepCell"):
        replay(run, partial(ampscale.MFTrainOneStepCell, **run["settings"]))


def test_clipping_reproduces_arrays_of_mindformers():
    """In two runs the squares overflow or underflow in MindFormers, but not in ampscale; see NORMS-magnitudes."""
    deviating = []
    for run in runs("mindformers", "clip"):
        clipped, norm = ampscale.clip_by_global_norm(arrays(run["input"]), float.fromhex(run["max_norm"]))
        if not alike(norm.reshape(1), array(run["norm"])):
            deviating.append((float(norm), float(array(run["norm"])[0])))
        else:
            assert all_same(clipped, arrays(run["output"]))
    assert deviating == [(pytest.approx(2**0.5 * 1e20), np.inf), (pytest.approx(2**0.5 * 1e-30), 0)]


def test_grad_scaler_reproduces_runs_of_paddle():
    """The scale and both counts are compared after each step. Paddle's code counts consecutive overflows."""
    for run in runs("paddle", "GradScaler"):
        settings = {**run["arguments"], "init_loss_scaling": float.fromhex(run["arguments"]["init_loss_scaling"])}
        scaler = ampscale.GradScaler(**settings, decr_count="consecutive")
        optimizer = ampscale.optimizers.SGD(ampscale.Network(lambda params: params[0], [np.zeros(1, np.float32)]))
        observed = []
        for step in run["steps"]:
            optimizer.parameters[0].grad = np.asarray([1.0 if step == "F" else np.inf], np.float32)
            drive(scaler, optimizer, run["drive"])
            state = scaler.state_dict()
            observed.append((float(state["scale"][0]), state["incr_count"], state["decr_count"]))
        assert observed == list(zip(floats(run["scale"]), run["incr_count"], run["decr_count"], strict=True))


def test_training_with_grad_scaler_reproduces_runs_of_paddle():
    """Scales and parameters are compared after each step with SGD or Momentum."""
    for run in runs("paddle", "training"):
        network = recorded_network(run)
        optimizer = optimizer_of(run, network)
        settings = {**run["scaler"], "init_loss_scaling": float.fromhex(run["scaler"]["init_loss_scaling"])}
        scaler = ampscale.GradScaler(**settings, decr_count="consecutive")
        for step in run["steps"]:
            network.backward(step, seed=np.float32(1))
            drive(scaler, optimizer, run["drive"])
            assert scaler.get_loss_scaling() == float.fromhex(step["scale"])
            assert all_same(network.params, arrays(step["parameters"]))


def drive(scaler, optimizer, call):
    """Apply one step with the call that the run used: `minimize`, or `step` and `update`."""
    if call == "minimize":
        scaler.minimize(optimizer, None)
    else:
        scaler.step(optimizer)
        scaler.update()


def recorded_network(run):
    """Return a network whose input is a recorded step: it returns the loss and the scaled gradients of this step."""

    def loss(_params, step):
        return array(step["loss"]) if "loss" in step else np.float32(0)

    def vjp(params, step):
        return loss(params, step), lambda _seed: arrays(step["scaled"])

    return ampscale.Network(loss, arrays(run["parameters"]), vjp)


def optimizer_of(run, network):
    """Return the optimizer of a run, with the parameters of *network*."""
    recorded = run["optimizer"]
    options = {} if recorded["momentum"] is None else {"momentum": recorded["momentum"]}
    return getattr(ampscale.optimizers, recorded["name"])(network, recorded["learning_rate"], **options)


def scale_sense_of(run):
    """Return the `scale_sense` of a run (an array, an update cell or a number) from a text such as "tensor(1,)"."""
    kind = run["scale_sense"]["kind"]
    value = float.fromhex(run["scale_sense"]["value"])
    if kind.startswith("tensor"):
        return np.full((1,) if "1" in kind else (), value, np.float64 if "f64" in kind else np.float32)
    if kind.startswith("dynamic"):
        factor, window = map(int, kind.removeprefix("dynamic(").removesuffix(")").split(","))
        return ampscale.DynamicLossScaleUpdateCell(value, factor, window)
    return ampscale.FixedLossScaleUpdateCell(value) if kind.startswith("fixed") else value


def replay(run, make):
    """Assert that the cell that *make* creates returns the recorded values in every step."""
    network = recorded_network(run)
    optimizer, unscaled = optimizer_of(run, network), []
    prepare = optimizer.prepare

    def recording(gradients):
        unscaled.append(gradients)
        return prepare(gradients)

    optimizer.prepare = recording
    cell = make(network, optimizer, scale_sense=scale_sense_of(run))
    for step in run["steps"]:
        out = cell(step)
        assert alike(out.loss, array(step["loss"]))
        assert bool(out.overflow) == step["overflow"]
        assert alike(out.loss_scale, array(step["scale"]))
        if step["unscaled"] is not None:
            assert all_same(unscaled[-1], arrays(step["unscaled"]))
        if step["parameters"] is not None:
            assert all_same(network.params, arrays(step["parameters"]))
        if "learning_rate" in step:
            assert alike(out.learning_rate, array(step["learning_rate"]))
            norms = [] if out.global_norm is None else [out.global_norm.reshape(1)]
            assert all_same(norms, [] if step["global_norm"] is None else [array(step["global_norm"])])
        if step.get("size") is not None:
            assert list(out.size) == step["size"]
