"""The learning rate that `MFTrainOneStepCell` reports: the one of the step that it reports on."""

import numpy as np
import pytest
from frameworks.networks import Recorder, array, bits, data, linear

from ampscale import optimizers
from ampscale.frameworks.mindformers import MFTrainOneStepCell

MAKERS = [optimizers.SGD, optimizers.Momentum, optimizers.AdamW]


@pytest.mark.clause("MINDFORMERS-learning-rate", "STEP-learning-rate")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("learning_rate", "reported"),
    [
        (0.5, [0.5, 0.5, 0.5, 0.5]),
        ([0.5, 0.25, 0.125], [0.5, 0.25, 0.25, 0.125]),
        (lambda count: 1 / (1 + count), [1, 0.5, 0.5, 1 / 3]),
    ],
)
def test_the_rate_of_a_schedule_stays_over_a_skipped_step(make, learning_rate, reported):
    """A number, a list and a function of the applied steps, over F O F F."""
    network = linear()
    cell = MFTrainOneStepCell(network, make(network, learning_rate), scale_sense=8)
    assert bits([cell(data(step)).learning_rate for step in "FOFF"]) == bits([array(rate) for rate in reported])


@pytest.mark.clause("MINDFORMERS-learning-rate")
def test_the_rate_that_is_reported_is_the_one_that_is_used():
    """Each step of plain descent moves by its rate times its gradient."""
    network = linear([1, 2])
    cell = MFTrainOneStepCell(network, optimizers.SGD(network, [0.5, 0.25]), scale_sense=8)
    for _ in range(3):
        before = np.array(network.params[0])
        rate = cell(data("F")).learning_rate
        assert bits(network.params) == bits([before - rate * data("F")])


@pytest.mark.clause("MINDFORMERS-learning-rate")
def test_a_rate_that_is_changed_later_is_reported():
    """It is read at every step, and what was reported stays."""
    network = linear()
    optimizer = optimizers.SGD(network, 0.5)
    cell = MFTrainOneStepCell(network, optimizer)
    rates = [cell(data("F")).learning_rate]
    optimizer.learning_rate = 0.125
    rates.append(cell(data("F")).learning_rate)
    optimizer.learning_rate = [9, 9, 0.25]
    rates.append(cell(data("F")).learning_rate)
    assert rates == [0.5, 0.125, 0.25]


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize("rate", [0.5, 1, array(0.5), array(0.5, "float64"), np.float32(0.5)])
def test_the_rate_of_any_optimizer_is_an_array_of_shape_empty(rate):
    """Of a callable with a `learning_rate`, a number or an array; a copy of it."""
    optimizer = Recorder()
    optimizer.learning_rate = rate
    reported = MFTrainOneStepCell(linear(), optimizer)(data("F")).learning_rate
    assert (type(reported), reported.shape, float(reported)) == (np.ndarray, (), float(rate))
    reported[...] = 7
    assert optimizer.learning_rate == rate != 7


@pytest.mark.clause("MINDFORMERS-learning-rate")
def test_an_optimizer_that_tells_no_rate_has_none():
    """None is reported."""
    assert MFTrainOneStepCell(linear(), Recorder())(data("F")).learning_rate is None


@pytest.mark.clause("MINDFORMERS-learning-rate")
def test_the_rate_is_float64_where_a_parameter_is():
    """As the optimizer has it."""
    network = linear(dtype="float64")
    reported = MFTrainOneStepCell(network, optimizers.SGD(network, 0.1))(data("F")).learning_rate
    assert bits([reported]) == bits([array(0.1, "float64")])
