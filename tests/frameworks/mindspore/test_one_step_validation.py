"""`TrainOneStepWithLossScaleCell`: what it takes, what it refuses, and when it looks at an array."""

from typing import NamedTuple

import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, data, linear
from frameworks.refusals import refused

from ampscale import Network, optimizers
from ampscale.frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    FixedLossScaleManager,
    TrainOneStepWithLossScaleCell,
)

INF, NAN = float("inf"), float("nan")


# scale_sense


@pytest.mark.clause("MINDSPORE-cell-scale-type")
@pytest.mark.parametrize(
    "value",
    [
        1024.0,
        1,
        True,
        None,
        "1024",
        [8.0],
        DynamicLossScaler(8, 2, 2),
        DynamicLossScaleManager(),
        FixedLossScaleManager(),
        np.sum,
    ],
)
def test_a_scale_sense_that_is_neither_cell_nor_array_is_refused(value):
    """Numbers, strings, None, lists, scalers, managers and plain functions are TypeErrors."""
    with refused(TypeError, "scale_sense", repr(value)):
        TrainOneStepWithLossScaleCell(linear(), Recorder(), value)


@pytest.mark.clause("MINDSPORE-cell-scale-type")
@pytest.mark.parametrize("dtype", ["float16", "int32", "int64", "bool", "complex64"])
def test_a_scale_array_is_float32_or_float64(dtype):
    """Other dtypes are TypeErrors."""
    with refused(TypeError, "scale_sense", dtype):
        TrainOneStepWithLossScaleCell(linear(), Recorder(), array(1, dtype))


@pytest.mark.clause("MINDSPORE-cell-scale-shape")
@pytest.mark.parametrize("shape", [(2,), (1, 1), (0,), (1, 2)])
def test_a_scale_array_has_shape_empty_or_one(shape):
    """Other shapes are ValueErrors."""
    with refused(ValueError, "scale_sense", str(shape)):
        TrainOneStepWithLossScaleCell(linear(), Recorder(), np.ones(shape, "float32"))


@pytest.mark.clause("MINDSPORE-cell-scale-checked")
@pytest.mark.parametrize("value", [NAN, INF, -INF, 0.0, -0.0, -8.0])
def test_a_scale_is_positive_and_finite(value):
    """In an array, in what an update cell starts from, and in `set_sense_scale`."""

    class Custom:
        def get_loss_scale(self):
            return value

        def __call__(self, loss_scale, overflow):
            return overflow

    for scale_sense in (array(value), array([value], "float64"), Custom()):
        with refused(ValueError, "scale_sense", repr(value)):
            TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8))
    with refused(ValueError, "sens", repr(value)):
        cell.set_sense_scale(array(value))
    assert cell.scale_sense == 8


# set_sense_scale


@pytest.mark.clause("MINDSPORE-set-sense-scale")
@pytest.mark.parametrize("scale_sense", [array(8), array([8]), array(8, "float64"), DynamicLossScaleUpdateCell(8, 2, 2)])
def test_a_set_scale_is_in_force_from_the_next_step_on(scale_sense):
    """Beside an update cell too, which goes on from it; it is copied, and nothing is returned."""
    network = linear()
    cell = TrainOneStepWithLossScaleCell(network, Recorder(), scale_sense)
    cell(FINE)
    sens = np.full_like(cell.scale_sense, 32)
    assert cell.set_sense_scale(sens) is None
    sens[...] = 2
    out = cell(FINE)
    assert [float(seed) for seed in network.seeds] == [8, 32]
    assert out.loss_scale == (64 if isinstance(scale_sense, DynamicLossScaleUpdateCell) else 32)


@pytest.mark.clause("MINDSPORE-set-sense-scale-checked")
@pytest.mark.parametrize(
    ("scale_sense", "sens", "error", "came"),
    [
        (array(8), array([16]), ValueError, "(1,)"),
        (array([8]), array(16), ValueError, "()"),
        (array(8), array([16, 16]), ValueError, "(2,)"),
        (array(8), array(16, "float64"), TypeError, "float64"),
        (array(8, "float64"), array(16), TypeError, "float32"),
        (array(8), array(16, "float16"), TypeError, "float16"),
        (array(8), 16.0, TypeError, "16.0"),
        (array(8), None, TypeError, "None"),
        (DynamicLossScaleUpdateCell(8, 2, 2), array([16]), ValueError, "(1,)"),
        (DynamicLossScaleUpdateCell(8, 2, 2), array(16, "float64"), TypeError, "float64"),
    ],
)
def test_a_set_scale_has_the_shape_and_dtype_of_the_present_one(scale_sense, sens, error, came):
    """Anything else is refused, and the scale is unchanged."""
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
    before = bits([cell.scale_sense])
    with refused(error, "sens", came):
        cell.set_sense_scale(sens)
    assert bits([cell.scale_sense]) == before


# Network and optimizer


@pytest.mark.clause("MINDSPORE-cell-network")
@pytest.mark.parametrize("output", [lambda loss: (loss, loss), lambda loss: [loss], float])
def test_a_network_returns_one_array(output):
    """A tuple, a list and a number are TypeErrors, and nothing has changed."""
    network = linear()
    network.vjp = lambda _params, x: (output(np.sum(x)), lambda seed: [x * seed])
    optimizer = optimizers.SGD(network)
    cell = TrainOneStepWithLossScaleCell(network, optimizer, DynamicLossScaleUpdateCell(8, 2, 1))
    with pytest.raises(TypeError, match="one array"):
        cell(FINE)
    assert (cell.scale_sense, optimizer.state.count) == (8, 0)


@pytest.mark.clause("MINDSPORE-cell-network")
@pytest.mark.filterwarnings("ignore:Output seems independent of input")
def test_a_differentiated_network_returns_one_array():
    """Where the array library differentiates, a tuple is a TypeError as well."""
    network = Network(lambda params, x: (params[0] * x, x), [array(1)])
    with pytest.raises(TypeError, match="one array"):
        TrainOneStepWithLossScaleCell(network, Recorder(), array(8))(array(2))


@pytest.mark.clause("MINDSPORE-cell-network", "MINDSPORE-cell-optimizer")
@pytest.mark.parametrize("wrong", [None, 1, "network", np.sum])
def test_a_network_is_one_and_an_optimizer_can_be_called(wrong):
    """A TypeError names what came."""
    with refused(TypeError, "network", repr(wrong)):
        TrainOneStepWithLossScaleCell(wrong, Recorder(), array(8))
    if not callable(wrong):
        with refused(TypeError, "optimizer", repr(wrong)):
            TrainOneStepWithLossScaleCell(linear(), wrong, array(8))


@pytest.mark.clause("MINDSPORE-detectors", "REPLICAS-same-decision")
@pytest.mark.parametrize(
    ("name", "wrong"), [("detector", "scan"), ("detector", 1), ("communicator", None), ("communicator", object())]
)
def test_a_detector_and_a_communicator_have_their_methods(name, wrong):
    """A TypeError names what came; None is the default detector."""
    with refused(TypeError, name, type(wrong).__name__):
        TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8), **{name: wrong})
    assert not TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8), detector=None)(FINE).overflow


# Reads


class Watched(np.ndarray):
    """Counts how often its truth is asked for."""

    looks = 0

    def __bool__(self):
        Watched.looks += 1
        return super().__bool__()


class Watching(TrainOneStepWithLossScaleCell):
    def get_overflow_status(self, status, compute_output):
        """A flag that is watched."""
        return super().get_overflow_status(status, compute_output).view(Watched)


@pytest.fixture(autouse=True)
def _no_looks_yet():
    Watched.looks = 0


@pytest.mark.clause("MINDSPORE-cell-gate", "STEP-two-modes")
def test_an_eager_optimizer_costs_one_look_a_step():
    """It is called on finite steps only."""
    optimizer = Recorder()
    cell = Watching(linear(), optimizer, DynamicLossScaleUpdateCell(8, 2, 1))
    looks = []
    for step in "FOOF":
        cell(data(step))
        looks.append(Watched.looks)
    assert looks == [1, 2, 3, 4]
    assert len(optimizer.calls) == 2


class Transformation(NamedTuple):
    """An optimizer in optax's shape: descent at a rate, its state, that halves at every step."""

    init = staticmethod(lambda _params: array(0.5))
    update = staticmethod(lambda gradients, rate, _params: ([-rate * gradient for gradient in gradients], rate / 2))


@pytest.mark.clause("MINDSPORE-cell-gate", "STEP-two-modes")
@pytest.mark.parametrize("make", [lambda network: optimizers.SGD(network, [0.5, 0.25]), lambda _network: Transformation()])
def test_a_functional_optimizer_costs_no_look(make):
    """Ours and one in optax's shape: the same steps, and nobody asks whether they are to be skipped."""
    network = linear([1, 2])
    cell = Watching(network, make(network), DynamicLossScaleUpdateCell(8, 2, 1))
    for step in "FOOF":
        cell(data(step))
    assert Watched.looks == 0
    assert bits(network.params) == bits([array([0.25, 3.5])])


@pytest.mark.clause("MINDSPORE-cell-gate", "STEP-two-modes")
def test_a_cell_runs_where_nothing_can_be_read(accelerator, monkeypatch):
    """On a device whose arrays the host cannot read, finite and overflow steps alike."""
    xp, device = accelerator

    def vjp(params, x):
        return xp.sum(params[0] * x), lambda seed: [x * seed]

    params = [xp.asarray([1.0, 2.0], dtype=xp.float32, device=device)]
    network = Network(lambda given, x: xp.sum(given[0] * x), params, vjp=vjp)
    cell = TrainOneStepWithLossScaleCell(network, optimizers.Momentum(network, 0.5), DynamicLossScaleUpdateCell(8, 2, 1))
    steps = [xp.asarray(values.tolist(), dtype=xp.float32, device=device) for values in (FINE, BAD, FINE)]
    outs = [cell(x) for x in steps]
    monkeypatch.undo()
    assert [float(out.loss_scale) for out in outs] == [16, 8, 16]
