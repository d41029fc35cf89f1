"""`TrainOneStepWithLossScaleCell`: valid and invalid arguments, and the number of host synchronizations."""

from typing import NamedTuple

import numpy as np
import pytest
from frameworks.networks import FINE, Recorder, array, bits, data, linear
from frameworks.rejections import check_rejected, rejects

from ampscale import Network, optimizers
from ampscale.frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    FixedLossScaleManager,
    TrainOneStepWithLossScaleCell,
)

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("MINDSPORE-cell-scale-type", "MINDSPORE-cell-scale-shape")
def test_scale_sense_must_be_an_update_cell_or_an_array_of_one_number():
    """An array is float32 or float64, of shape () or (1,). An error names the value, dtype or shape."""

    def make(_, value):
        TrainOneStepWithLossScaleCell(linear(), Recorder(), value)

    values = (1024.0, 1, True, None, "1024", [8.0], np.sum)
    classes = (DynamicLossScaler(8, 2, 2), DynamicLossScaleManager(), FixedLossScaleManager())
    check_rejected(make, [("scale_sense", value, TypeError) for value in (*values, *classes)])
    arrays = [array(1, dtype) for dtype in ("float16", "int32", "int64", "bool", "complex64")]
    check_rejected(make, [("scale_sense", value, TypeError) for value in arrays], got=lambda value: str(value.dtype))
    arrays = [np.ones(shape, "float32") for shape in ((2,), (1, 1), (0,), (1, 2))]
    check_rejected(make, [("scale_sense", value, ValueError) for value in arrays], got=lambda value: str(value.shape))


@pytest.mark.clause("MINDSPORE-cell-scale-checked")
@pytest.mark.parametrize("value", [NAN, INF, -INF, 0.0, -0.0, -8.0])
def test_a_scale_must_be_positive_and_finite(value):
    """Arrays, the initial value of an update cell, and `set_sense_scale` are validated."""

    class Custom:
        def get_loss_scale(self):
            return value

        def __call__(self, loss_scale, overflow):
            return overflow

    for scale_sense in (array(value), array([value], "float64"), Custom()):
        with rejects(ValueError, "scale_sense", repr(value)):
            TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8))
    with rejects(ValueError, "sens", repr(value)):
        cell.set_sense_scale(array(value))
    assert cell.scale_sense == 8


@pytest.mark.clause("MINDSPORE-set-sense-scale")
@pytest.mark.parametrize("scale_sense", [array(8), array([8]), array(8, "float64"), DynamicLossScaleUpdateCell(8, 2, 2)])
def test_set_sense_scale_changes_the_scale_of_the_next_step(scale_sense):
    """An update cell continues from it. It is copied, and None is returned."""
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
    ("scale_sense", "sens", "error", "actual"),
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
def test_set_sense_scale_requires_the_shape_and_dtype_of_the_current_scale(scale_sense, sens, error, actual):
    """After an error the scale is unchanged."""
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
    before = bits([cell.scale_sense])
    with rejects(error, "sens", actual):
        cell.set_sense_scale(sens)
    assert bits([cell.scale_sense]) == before


@pytest.mark.clause("MINDSPORE-cell-network")
@pytest.mark.filterwarnings("ignore:Output seems independent of input")
@pytest.mark.parametrize("output", [lambda loss: (loss, loss), lambda loss: [loss], float])
def test_a_network_must_return_one_array(output):
    """Tuples, lists and numbers are TypeErrors that change nothing, even if the array library differentiates."""
    network, differentiated = linear(), Network(lambda params, x: (params[0] * x, x), [array(1)])
    network.vjp = lambda _params, x: (output(np.sum(x)), lambda seed: [x * seed])
    optimizer = optimizers.SGD(network)
    cell = TrainOneStepWithLossScaleCell(network, optimizer, DynamicLossScaleUpdateCell(8, 2, 1))
    for train, x in ((cell, FINE), (TrainOneStepWithLossScaleCell(differentiated, Recorder(), array(8)), array(2))):
        with pytest.raises(TypeError, match="one array"):
            train(x)
    assert (cell.scale_sense, optimizer.state.count) == (8, 0)


@pytest.mark.clause("MINDSPORE-cell-network", "MINDSPORE-cell-optimizer", "MINDSPORE-detectors", "REPLICAS-same-decision")
def test_the_parts_of_a_cell_must_have_their_methods():
    """A TypeError names the value. None selects the default detector."""

    def make(name, value):
        parts = {"network": linear(), "optimizer": Recorder(), "scale_sense": array(8), name: value}
        return TrainOneStepWithLossScaleCell(**parts)

    wrong = [("network", value, TypeError) for value in (None, 1, "network", np.sum)]
    check_rejected(make, wrong + [("optimizer", value, TypeError) for value in (None, 1, "network")])
    wrong = [("detector", "scan", TypeError), ("detector", 1, TypeError)]
    wrong += [("communicator", None, TypeError), ("communicator", object(), TypeError)]
    check_rejected(make, wrong, got=lambda value: type(value).__name__)
    assert not make("detector", None)(FINE).overflow


class CountedFlag(np.ndarray):
    """Flag that counts its conversions to bool."""

    looks = 0

    def __bool__(self):
        CountedFlag.looks += 1
        return super().__bool__()


class Watching(TrainOneStepWithLossScaleCell):
    def get_overflow_status(self, status, compute_output):
        """Return a flag that counts its conversions."""
        return super().get_overflow_status(status, compute_output).view(CountedFlag)


def eager(network):
    """Callable optimizer with learning rates 0.5, then 0.25, and then no reported rate."""
    rates = iter([0.5, 0.25])

    def step(gradients):
        rate = next(rates)
        network.params = [value - array(rate) * gradient for value, gradient in zip(network.params, gradients, strict=True)]

    return step


class Transformation(NamedTuple):
    """Gradient descent in optax's shape; its state is the learning rate, which halves at every step."""

    init = staticmethod(lambda _params: array(0.5))
    update = staticmethod(lambda gradients, rate, _params: ([-rate * gradient for gradient in gradients], rate / 2))


@pytest.mark.clause("MINDSPORE-cell-skip", "STEP-two-modes")
@pytest.mark.parametrize(
    ("make", "looks"),
    [(eager, 4), (lambda network: optimizers.SGD(network, [0.5, 0.25]), 0), (lambda _network: Transformation(), 0)],
)
def test_a_callable_optimizer_needs_one_synchronization_and_others_none(make, looks):
    """A callable, one of `ampscale.optimizers` and one in optax's shape run the same steps."""
    CountedFlag.looks = 0
    network = linear([1, 2])
    cell = Watching(network, make(network), DynamicLossScaleUpdateCell(8, 2, 1))
    for step in "FOOF":
        cell(data(step))
    assert CountedFlag.looks == looks
    assert bits(network.params) == bits([array([0.25, 3.5])])
