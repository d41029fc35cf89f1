"""`TrainOneStepWithLossScaleCell`: valid and invalid scales, networks and optimizers."""

from types import SimpleNamespace

import numpy as np
import pytest
from frameworks.networks import FINE, Recorder, array, bits, input_of, linear
from frameworks.rejections import rejects
from libraries import on

from ampscale import Network, optimizers
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell


@pytest.mark.clause("MINDSPORE-cell-scale-checked")
@pytest.mark.parametrize("value", [float("nan"), 0.0])
def test_the_initial_scale_of_an_update_cell_must_be_positive_and_finite(value):
    """The update cell may be any object with `get_loss_scale` and `__call__`."""

    class Custom:
        def get_loss_scale(self):
            return value

        def __call__(self, loss_scale, overflow):
            return overflow

    with rejects(ValueError, "scale_sense", repr(value)):
        TrainOneStepWithLossScaleCell(linear(), Recorder(), Custom())


@pytest.mark.clause("MINDSPORE-cell-scale-checked")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -8.0])
@on("numpy", "strict", "torch", "jax")
def test_a_scale_array_must_be_positive_and_finite(library, value):
    """The constructor, `set_sense_scale` and `load_state_dict` raise, and the cell keeps its scale."""
    network = Network(sum, library.array([1.0]), vjp=sum)  # no function of the network is called
    cell = TrainOneStepWithLossScaleCell(network, Recorder(), library.array(8.0))
    scale = library.array(value)
    with rejects(ValueError, "scale_sense", repr(value)):
        TrainOneStepWithLossScaleCell(network, Recorder(), scale)
    with rejects(ValueError, "sens", repr(value)):
        cell.set_sense_scale(scale)
    with rejects(ValueError, "scale_sense", repr(value)):
        cell.load_state_dict({"scale_sense": scale, "update_cell": {}})
    assert float(library.to_numpy(cell.scale_sense)) == 8


@pytest.mark.clause("MINDSPORE-cell-scale-checked", "MINDSPORE-set-sense-scale-checked")
@on("strict", "jax")
def test_the_scale_must_be_of_the_library_of_the_parameters(library):
    """The next step would fail in the backward pass. The dtypes of JAX are NumPy's, so a check of dtypes is not enough."""
    cell, scale = TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8)), library.array(8.0)
    for call, names in (
        (lambda: TrainOneStepWithLossScaleCell(linear(), Recorder(), scale), "params from numpy .*; scale_sense"),
        (lambda: cell.set_sense_scale(scale), "current_scale from numpy .*; sens"),
        (lambda: cell.load_state_dict({"scale_sense": scale, "update_cell": {}}), "current_scale from numpy .*; scale_sense"),
    ):
        with pytest.raises(TypeError, match=f"^arrays must come from one library and one device, got {names} from"):
            call()


@pytest.mark.clause("MINDSPORE-set-sense-scale")
@pytest.mark.parametrize("scale_sense", [array(8), array([8]), array(8, "float64"), DynamicLossScaleUpdateCell(8, 2, 2)])
def test_set_sense_scale_changes_the_scale_of_the_next_step(scale_sense):
    """An update cell continues from the new scale. The array is copied."""
    network = linear()
    cell = TrainOneStepWithLossScaleCell(network, Recorder(), scale_sense)
    cell(FINE)
    sens = np.full_like(cell.scale_sense, 32)
    assert cell.set_sense_scale(sens) is None
    sens[...] = 2
    output = cell(FINE)
    assert [float(seed) for seed in network.seeds] == [8, 32]
    assert output.loss_scale == (64 if isinstance(scale_sense, DynamicLossScaleUpdateCell) else 32)


@pytest.mark.clause("MINDSPORE-cell-network")
@pytest.mark.filterwarnings("ignore:Output seems independent of input")
@pytest.mark.parametrize("output", [lambda loss: (loss, loss), lambda loss: [loss], float], ids=["tuple", "list", "number"])
def test_a_network_must_return_one_array(output):
    """Tuples, lists and numbers raise a TypeError before any change, even if the array library differentiates."""
    network = linear()
    differentiated = Network(lambda params, x: (params[0] * x, x), [array(1)])
    network.vjp = lambda _params, x: (output(np.sum(x)), lambda seed: [x * seed])
    optimizer = optimizers.SGD(network)
    cell = TrainOneStepWithLossScaleCell(network, optimizer, DynamicLossScaleUpdateCell(8, 2, 1))
    for train, x in ((cell, FINE), (TrainOneStepWithLossScaleCell(differentiated, Recorder(), array(8)), array(2))):
        with pytest.raises(TypeError, match="one array"):
            train(x)
    assert (cell.scale_sense, optimizer.state.count) == (8, 0)


@pytest.mark.clause("MINDSPORE-cell-skip", "STEP-two-modes")
def test_an_optax_transformation_runs_the_finite_steps():
    """The transformation is gradient descent. Its state is the learning rate, which halves at every finite step."""
    network = linear([1, 2])
    transformation = SimpleNamespace(
        init=lambda _params: array(0.5),
        update=lambda gradients, rate, _params: ([-rate * gradient for gradient in gradients], rate / 2),
    )
    cell = TrainOneStepWithLossScaleCell(network, transformation, DynamicLossScaleUpdateCell(8, 2, 1))
    for step in "FOOF":
        cell(input_of(step))
    assert bits(network.params) == bits([array([0.25, 3.5])])
