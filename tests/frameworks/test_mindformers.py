"""`MFTrainOneStepCell`: arguments, the five or seven outputs, clipping, and the reported learning rate."""

import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, linear

from ampscale import optimizers
from ampscale.core.replicas import SINGLE_REPLICA
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell
from ampscale.frameworks.mindspore.detectors import GradientScan, StatusRegister

FIVE = ("loss", "overflow", "loss_scale", "learning_rate", "global_norm")


@pytest.mark.clause("MINDFORMERS-keywords")
def test_an_unknown_keyword_is_rejected():
    """The error names the keyword, and lists the known keywords from the first to the last."""
    with pytest.raises(TypeError, match=r"among \['use_clip_grad', .*, 'communicator'\], got \['parallel_config'\]$"):
        MFTrainOneStepCell(linear(), Recorder(), parallel_config=1)


@pytest.mark.clause("MINDFORMERS-scale-number", "MINDFORMERS-scale-array", "MINDFORMERS-loss-scale")
def test_a_number_becomes_a_0d_float32_scale():
    """An array keeps its shape and dtype. Steps do not change the scale, and the default scale is 1."""
    assert bits([MFTrainOneStepCell(linear(), Recorder()).scale_sense]) == bits([array(1)])
    scales = [(value, array(value)) for value in (1, 8, 1.0, 0.5, 2.0**32, 16777217)]
    for value, scale in [*scales, *((scale, scale) for scale in (array(8), array([8], "float64")))]:
        network = linear()
        cell = MFTrainOneStepCell(network, Recorder(), scale_sense=value)
        assert [bits([cell(x).loss_scale]) for x in (FINE, BAD)] == [bits([scale])] * 2
        assert [float(seed) for seed in network.seeds] == [scale, scale]


@pytest.mark.clause("MINDFORMERS-outputs", "MINDFORMERS-loss", "MINDFORMERS-overflow", "MINDFORMERS-global-norm")
def test_a_step_returns_five_values():
    """Loss, overflow, scale and learning rate are arrays of shape (); the norm is None without clipping."""
    network = linear([1, 2])
    output = MFTrainOneStepCell(network, optimizers.SGD(network, 0.5), scale_sense=8)(FINE)
    assert output._fields == FIVE
    assert bits(output[:4]) == bits([array(-3), np.asarray(False), array(8), array(0.5)])
    assert output.global_norm is None
    assert bits(network.params) == bits([array([0.5, 3])])


@pytest.mark.clause("MINDFORMERS-outputs", "MINDFORMERS-local-norm", "MINDFORMERS-size", "MINDFORMERS-global-norm")
@pytest.mark.parametrize("scale", [1, 3.0, 2.0**20])
def test_a_step_with_local_norms_returns_seven_values(scale):
    """The last two values are the norm and the number of elements of each gradient. The global norm requires clipping."""
    network = linear([1, 1], [[1, 1], [1, 1]])
    cell = MFTrainOneStepCell(network, Recorder(), use_clip_grad=True, scale_sense=scale, local_norm=True)
    output = cell(array([3, 4]), np.zeros((2, 2), "float32"))
    assert output._fields == (*FIVE, "local_norm", "size")
    assert bits(output[4:]) == bits([array(5), array([5, 0]), array([2, 4], "int64")])
    output = MFTrainOneStepCell(linear(), Recorder(), local_norm=True)(array([3, 4]))
    assert (len(output), output.global_norm) == (7, None)


@pytest.mark.clause("MINDFORMERS-overflow")
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("make", [bool, np.asarray])
def test_overflow_is_the_result_of_process_loss_scale(skip, make):
    """The base class, `TrainOneStepWithLossScaleCell`, returns the detected overflow instead."""

    class Subclass(MFTrainOneStepCell):
        def process_loss_scale(self, overflow):
            super().process_loss_scale(overflow)
            return make(skip)

    optimizer = Recorder()
    cell = Subclass(linear(), optimizer, scale_sense=DynamicLossScaleUpdateCell(8, 2, 1))
    outputs = [cell(x) for x in (FINE, BAD)]
    assert bits([output.overflow for output in outputs]) == bits([np.asarray(skip)] * 2)
    assert [output.loss_scale for output in outputs] == [16, 8]
    assert len(optimizer.calls) == (0 if skip else 2)


@pytest.mark.clause("MINDFORMERS-overflow", "MINDSPORE-detectors", "MINDSPORE-subclasses")
@pytest.mark.parametrize(("detector", "overflow"), [(GradientScan(), False), (StatusRegister(), True)])
def test_a_status_register_observes_the_scaled_gradients(detector, overflow):
    """A subclass that masks the checked gradients hides an infinity from a scan, but not from a register."""

    class Subclass(MFTrainOneStepCell):
        def get_overflow_status(self, status, compute_output):
            return super().get_overflow_status(status, [FINE])

    assert Subclass(linear(), Recorder(), detector=detector)(BAD).overflow == overflow


@pytest.mark.clause("MINDFORMERS-global-norm", "MINDFORMERS-local-norm", "REPLICAS-agreed-norm", "REPLICAS-local-norm")
def test_the_global_norm_is_that_of_the_mean_over_replicas():
    """The local norms are those of this replica. The mean is computed after unscaling and before clipping."""

    class Pair:
        mean = staticmethod(lambda tree: [(leaf + array([3, 4])) / 2 for leaf in tree])
        agree = staticmethod(SINGLE_REPLICA.agree)
        check_same = staticmethod(SINGLE_REPLICA.check_same)

    optimizer = Recorder()
    options = {"use_clip_grad": True, "max_grad_norm": 100.0, "scale_sense": 8, "local_norm": True, "communicator": Pair()}
    output = MFTrainOneStepCell(linear(), optimizer, **options)(array([9, 12]))
    assert bits(output[4:6]) == bits([array(10), array([15])])
    assert bits(optimizer.calls[0]) == bits([array([6, 8])])


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize("rate", [0.5, 1, array(0.5), array(0.5, "float64"), np.float32(0.5)], ids=repr)
def test_the_rate_of_any_optimizer_is_a_0d_array(rate):
    """The `learning_rate` of a callable optimizer is a number or an array. If the optimizer has none, the cell returns None."""
    optimizer = Recorder()
    cell = MFTrainOneStepCell(linear(), optimizer)
    assert cell(FINE).learning_rate is None
    optimizer.learning_rate = rate
    reported = cell(FINE).learning_rate
    assert (type(reported), reported.shape, float(reported)) == (np.ndarray, (), float(rate))
    reported[...] = 7
    assert optimizer.learning_rate == rate != 7
