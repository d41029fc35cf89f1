"""Documented classes on JAX, whose arrays are immutable: cells, update cells, scalers, and Paddle's GradScaler."""

import numpy as np
import pytest
from libraries import load
from linear import network as linear
from strategies import alike, same

from ampscale import (
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    GradScaler,
    MFTrainOneStepCell,
    Network,
    TrainOneStepWithLossScaleCell,
)
from ampscale.optimizers import SGD, Momentum

jax = pytest.importorskip("jax", reason="needs jax")
optax = pytest.importorskip("optax", reason="needs optax")
jnp = jax.numpy

JAX, NUMPY = load("jax"), load("numpy")
INPUTS = [np.asarray(row, np.float32) for row in ([1, 2], [np.inf, 1], [0.5, -1], [3, np.nan], [1, 1], [2, -0.25])]
FINITE = [bool(np.isfinite(row).all()) for row in INPUTS]


def model(library=JAX, dtype="float32"):
    """Return a network whose gradients are its inputs."""
    return linear([library.array([0.5, -2.0], dtype)])


def dynamic():
    """Return an update cell whose scale grows after two consecutive finite steps."""
    return DynamicLossScaleUpdateCell(2.0**8, 2, 2)


def outputs(step, library=JAX):
    """Return for each input the output of a cell, and the parameters after that step."""
    return [(step([library.put(row)]), step.network.params) for row in INPUTS]


@pytest.mark.clause("BACKENDS-same-run", "BACKENDS-bit-identical", "MINDSPORE-cell-loss-scale", "MINDSPORE-cell-overflow")
def test_cell_outputs_equal_numpy():
    """The cell clips, accumulates gradients, and computes local norms and a moving average, without jax_enable_x64."""
    options = {"use_clip_grad": True, "local_norm": True, "gradient_accumulation_steps": 2, "ema_decay": 0.75}

    def run(library):
        network = model(library, "float16")
        step = MFTrainOneStepCell(network, Momentum(network, 0.5), scale_sense=dynamic(), **options)
        results = outputs(step, library)
        assert all(output.size.tolist() == [2] for output, _ in results)
        results = [(output._replace(size=None), params) for output, params in results]  # sizes are int32 on JAX
        return library.to_numpy([step.ema_params, *results])

    with jax.enable_x64(False), np.errstate(all="ignore"):
        assert same(run(JAX), run(NUMPY))


@pytest.mark.clause("MINDSPORE-cell-snapshot", "MINDSPORE-set-sense-scale")
def test_cells_with_a_fixed_scale_use_jax_arrays():
    """The scale and the argument of `set_sense_scale` are JAX arrays of the same shape."""
    network = model()
    step = TrainOneStepWithLossScaleCell(network, SGD(network, 0.5), scale_sense=jnp.asarray([8.0], jnp.float32))
    assert alike(step([JAX.put(INPUTS[0])]).loss_scale, np.asarray([8], np.float32))
    step.set_sense_scale(jnp.asarray([16.0], jnp.float32))
    assert alike(step([JAX.put(INPUTS[1])]).loss_scale, np.asarray([16], np.float32))
    with pytest.raises(ValueError, match=r"^sens must have shape \(1,\), got \(\)$"):
        step.set_sense_scale(jnp.asarray(16.0, jnp.float32))


class Halving:
    """User-defined update cell that writes into the scale."""

    def get_loss_scale(self):
        return 64.0

    def __call__(self, loss_scale, overflow):
        loss_scale[...] = self.next_scale(loss_scale, overflow)
        return overflow

    def next_scale(self, loss_scale, overflow):
        return jnp.where(overflow, loss_scale / 2, loss_scale)


@pytest.mark.clause("MINDSPORE-cell-scale-cell")
def test_user_defined_update_cells_return_the_next_scale():
    """JAX arrays are immutable, so `next_scale` is called. Without `next_scale`, the constructor raises an error."""
    network = model()
    step = MFTrainOneStepCell(network, SGD(network, 0.5), scale_sense=Halving())
    assert [float(output.loss_scale) for output, _ in outputs(step)] == [64, 32, 32, 16, 16, 16]
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(Halving, "next_scale")
        with pytest.raises(TypeError, match=r"^scale_sense, for a network with immutable arrays, must have .*'next_scale'"):
            MFTrainOneStepCell(network, SGD(network, 0.5), scale_sense=Halving())


@pytest.mark.clause("MINDSPORE-update-cell-call", "MINDSPORE-update-cell-dynamic")
def test_update_cells_return_the_next_scale():
    """
    `next_scale` does not write into its argument, and returns the argument itself if the scale is fixed.

    A call of the cell would write into its argument, so the call raises an error and counts nothing.
    """
    scale = jnp.asarray([8.0], jnp.float32)
    cell = DynamicLossScaleUpdateCell(8, 2, 2)
    old_state = cell.state_dict()
    with pytest.raises(TypeError, match=r"^loss_scale must be a mutable array, got "):
        cell(scale, jnp.asarray(True))
    assert cell.state_dict() == old_state
    assert cell.next_scale(scale, jnp.asarray(True)).tolist() == [4]
    assert FixedLossScaleUpdateCell(8).next_scale(scale, jnp.asarray(True)) is scale


@pytest.mark.clause("MINDSPORE-adjust")
def test_scalers_reject_traced_arrays():
    """The error names the alternative, and the scaler stays usable."""
    scaler = DynamicLossScaler(8, 2, 1)
    with pytest.raises(ValueError, match=r"must not be traced, .*; under jit, use a LossScaleRule"):
        jax.jit(scaler.adjust)(jnp.asarray(True))
    scaler.adjust(jnp.asarray(True))
    assert scaler.scale_value == 16


@pytest.mark.clause("MINDSPORE-scaler-scale")
@pytest.mark.parametrize("transformed", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_scalers_can_be_used_in_a_differentiated_loss(transformed):
    """The first array of the scaler may be traced."""
    scaler = DynamicLossScaler(8, 2, 3)
    values = jnp.asarray([3.0, 0.0], jnp.float32)
    with jax.checking_leaks():
        gradient = transformed(jax.grad(lambda values: scaler.scale(jnp.sum(values**2))))(values)
    assert gradient.tolist() == [48, 0]
    assert float(scaler.scale_value) == 8
    assert scaler.unscale(gradient).tolist() == [6, 0]


def backward(network, scaler, row):
    """Compute the gradients of the scaled loss, and return the scaled loss."""
    loss = network.backward([JAX.put(row)], seed=jnp.asarray(scaler.get_loss_scaling(), jnp.float32))
    return scaler.scale(loss)


@pytest.mark.clause("PADDLE-minimize", "PADDLE-minimize-skips", "PADDLE-unscale", "BACKENDS-one-host-sync")
@pytest.mark.parametrize("unscaled_first", [False, True])
def test_paddle_scaler_replaces_gradients(unscaled_first):
    """Immutable gradients are replaced by unscaled ones. Overflows skip the step. Each step has one host synchronization."""
    scaler = GradScaler(init_loss_scaling=64.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)
    network, plain_network = model(), model()
    optimizer, plain_optimizer = SGD(network, 0.5), SGD(plain_network, 0.5)
    scales = []
    for row, finite in zip(INPUTS, FINITE, strict=True):
        loss = backward(network, scaler, row)
        with JAX.count_reads() as reads:
            if unscaled_first:
                scaler.unscale_(optimizer)
            scaler.minimize(optimizer, loss)
        assert len(reads) == 1
        if finite:
            plain_optimizer([JAX.put(row)])
            assert alike(optimizer.parameters[0].grad, row)
        assert same(network.params, plain_network.params)
        scales.append(scaler.get_loss_scaling())
    assert scales == [64, 32, 32, 16, 16, 32]


@pytest.mark.clause("PADDLE-scale", "PADDLE-scale-dtype")
def test_paddle_scaled_loss_can_be_differentiated():
    """A float16 loss is scaled in float32, where no scale overflows. The gradient has the dtype of the parameters."""
    scaler = GradScaler(init_loss_scaling=2.0**15)
    params = jnp.asarray([0.5, 0.0], jnp.float16)
    loss, gradient = jax.jit(jax.value_and_grad(lambda params: scaler.scale(jnp.sum(params))))(params)
    assert alike(loss, np.asarray(2.0**14, np.float32))
    assert alike(gradient, np.full(2, 2.0**15, np.float16))


@pytest.mark.clause("STEP-two-modes")
@pytest.mark.parametrize("name", ["optimizer", "training cell", "update cell", "scaler"])
def test_objects_that_store_their_state_are_not_traced(name):
    """Otherwise the parameters or counts would be lost after the trace."""
    network = Network(lambda w, x: jnp.sum(w * x), jnp.ones(2))
    optimizer = SGD(network, 0.5)
    update_cell = dynamic()
    scale = jnp.float32(8.0)
    scaler = GradScaler()

    def scaled_step(gradient):
        optimizer.parameters[0].grad = gradient
        scaler.step(optimizer)

    calls = {
        "optimizer": (optimizer, jnp.ones(2)),
        "training cell": (TrainOneStepWithLossScaleCell(network, optimizer, update_cell), jnp.ones(2)),
        "scaler": (scaled_step, jnp.ones(2)),
        "update cell": (lambda overflow: update_cell.next_scale(scale, overflow), jnp.asarray(True)),
    }
    call, argument = calls[name]
    with pytest.raises(ValueError, match=rf"must not be traced, since the {name} stores its state; under jit, use"):
        jax.jit(call)(argument)
    assert network.params.tolist() == [1, 1]
    assert (update_cell.cur_iter, update_cell.last_overflow_iter, int(optimizer.state.count)) == (1, 0, 0)
    scaler.abandon(optimizer)  # no step was interrupted
    with pytest.raises(RuntimeError, match="neither has been called"):
        scaler.update()
