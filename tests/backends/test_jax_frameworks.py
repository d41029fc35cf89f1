"""The documented classes on JAX, whose arrays cannot be written to: cells, update cells, scalers, and Paddle's GradScaler."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from libraries import load
from linear import network as linear
from strategies import DTYPES, alike, same

from ampscale import (
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    GradScaler,
    MFTrainOneStepCell,
    StaticLossScaler,
    TrainOneStepWithLossScaleCell,
    all_finite,
)
from ampscale.core.trees import leaves
from ampscale.optimizers import SGD, AdamW, Momentum

jax = pytest.importorskip("jax", reason="needs jax")
optax = pytest.importorskip("optax", reason="needs optax")
jnp = jax.numpy

JAX, NUMPY = load("jax"), load("numpy")
INPUTS = [np.asarray(row, np.float32) for row in ([1, 2], [np.inf, 1], [0.5, -1], [3, np.nan], [1, 1], [2, -0.25])]
FINITE = [bool(np.isfinite(row).all()) for row in INPUTS]
CELLS = pytest.mark.parametrize("cell", [TrainOneStepWithLossScaleCell, MFTrainOneStepCell])
OPTIMIZERS = {
    "SGD": lambda network: SGD(network, 0.5),
    "AdamW": lambda network: AdamW(network, 0.5),
    "sgd": lambda _: optax.sgd(0.5, momentum=0.5),
    "adam": lambda _: optax.adam(0.5),
}


def model(library=JAX, dtype="float32"):
    """A network whose gradients are its inputs."""
    return linear([library.array([0.5, -2.0], dtype)])


def dynamic():
    """An update cell whose scale moves at every second finite step in a row."""
    return DynamicLossScaleUpdateCell(2.0**8, 2, 2)


def outputs(step, library=JAX):
    """What a cell returns for each input, and the parameters after it."""
    return [(step([library.put(row)]), step.network.params) for row in INPUTS]


@pytest.mark.clause("MINDSPORE-cell-gate", "BACKENDS-host-reads-none", "STEP-two-modes")
@CELLS
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_cell_reads_nothing(cell, make):
    """Our optimizers and optax's step where the gradients are finite, and stay where not, without a look at the host."""
    network = model()
    step = cell(network, make(network), scale_sense=dynamic())
    inputs, seen = [[JAX.put(row)] for row in INPUTS], []
    step(inputs[0])  # what JAX reads to compile is not the step's
    states = [[network.params, step._applier.state]]
    with JAX.count_reads() as reads:
        for row in inputs:
            seen.append(step(row))
            states.append([network.params, step._applier.state])
    assert reads == []
    assert [not output.overflow for output in seen] == FINITE
    assert [not same(before, after) for before, after in pairwise(states)] == FINITE
    assert [float(output.loss_scale) for output in seen] == [512, 256, 256, 128, 128, 256]


@pytest.mark.clause("BACKENDS-same-run", "BACKENDS-bit-identical")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x64", [True, False])
def test_mindformers_cell_with_everything_on_is_numpys(dtype, x64):
    """Clipping, local norms, accumulation and a moving average: the outputs and the parameters of NumPy, bit for bit."""
    if dtype == "float64" and not x64:
        pytest.skip("JAX has no float64 then")

    def run(library):
        network = model(library, dtype)
        step = MFTrainOneStepCell(
            network, Momentum(network, 0.5), True, 1.0, dynamic(), True, gradient_accumulation_steps=2, ema_decay=0.75
        )
        return library.to_numpy([outputs(step, library), step.ema_params])

    with jax.enable_x64(x64), np.errstate(all="ignore"):
        got, wanted = run(JAX), run(NUMPY)
    sizes = [output._replace(size=output.size.astype(np.int64)) for output, _ in got[0]]  # without 64 bits there is int32
    assert same([sizes, *got], [[output for output, _ in wanted[0]], *wanted]) or not x64
    assert same([output._replace(size=None) for output, _ in got[0]], [output._replace(size=None) for output, _ in wanted[0]])
