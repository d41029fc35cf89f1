"""`MFTrainOneStepCell`: arguments, the five or seven outputs, clipping, and the reported learning rate."""

import inspect
from functools import partial

import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, data, linear
from frameworks.rejections import check_rejected

from ampscale import optimizers
from ampscale.core.replicas import SINGLE_REPLICA
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, FixedLossScaleManager, TrainOneStepWithLossScaleCell
from ampscale.frameworks.mindspore.detectors import GradientScan, StatusRegister

INF, NAN = float("inf"), float("nan")
FIVE = ("loss", "overflow", "loss_scale", "learning_rate", "global_norm")


@pytest.mark.clause("MINDFORMERS-keywords")
@pytest.mark.parametrize("unknown", ["foo", "ema", "use_grad_clip", "parallel_config"])
def test_an_unknown_keyword_is_rejected(unknown):
    """The TypeError names it and lists the known ones."""
    with pytest.raises(TypeError, match=unknown) as caught:
        MFTrainOneStepCell(linear(), Recorder(), **{unknown: 1})
    known = [name for name in inspect.signature(MFTrainOneStepCell).parameters if name not in ("network", "optimizer", "kwargs")]
    assert all(repr(name) in str(caught.value) for name in known)


@pytest.mark.clause("MINDFORMERS-scale-number", "MINDFORMERS-scale-array", "MINDFORMERS-loss-scale")
def test_a_number_is_a_float32_scale_of_shape_empty():
    """An array keeps its shape and dtype. No step changes either, and the default scale is 1."""
    assert bits([MFTrainOneStepCell(linear(), Recorder()).scale_sense]) == bits([array(1)])
    scales = [(value, array(value)) for value in (1, 8, 1.0, 0.5, 2.0**32, 16777217)]
    for value, scale in [*scales, *((scale, scale) for scale in (array(8), array([8], "float64")))]:
        network = linear()
        cell = MFTrainOneStepCell(network, Recorder(), scale_sense=value)
        assert [bits([cell(x).loss_scale]) for x in (FINE, BAD)] == [bits([scale])] * 2
        assert [float(seed) for seed in network.seeds] == [scale, scale]


def make(name, value, **options):
    """Return a cell with one given argument."""
    return MFTrainOneStepCell(**{"network": linear(), "optimizer": Recorder(), **options, name: value})


@pytest.mark.clause("MINDFORMERS-scale-type", "MINDFORMERS-scale-shape", "MINDFORMERS-scale-checked")
def test_a_scale_must_be_a_positive_finite_number_or_an_array_of_one():
    """Bools, strings, None, lists, managers, and arrays of other dtypes or shapes are rejected."""
    others = (True, None, "8", [8.0], FixedLossScaleManager())
    check_rejected(make, [("scale_sense", value, TypeError) for value in others])
    others = (array(8, "float16"), array(8, "int32"))
    check_rejected(make, [("scale_sense", value, TypeError) for value in others], got=lambda value: str(value.dtype))
    others = [np.ones(shape, "float32") for shape in ((2,), (1, 1), (0,))]
    check_rejected(make, [("scale_sense", value, ValueError) for value in others], got=lambda value: str(value.shape))
    numbers = (NAN, INF, -INF, 0, 0.0, -8)
    check_rejected(make, [("scale_sense", value, ValueError) for value in (*numbers, 1e39, 1e-50, 10**400)])
    others = [array(value) for value in numbers]
    check_rejected(make, [("scale_sense", value, ValueError) for value in others], got=lambda value: repr(float(value)))


@pytest.mark.clause(
    "MINDFORMERS-max-grad-norm", "MINDFORMERS-signature", "MINDFORMERS-accumulation", "MINDFORMERS-ema", "NORMS-limit-checked"
)
def test_the_other_arguments_are_validated():
    """The limit of the norm is validated even if it is unused."""
    for use_clip_grad in (True, False):
        wrong = [("max_grad_norm", value, ValueError) for value in (0, 0.0, -1.0, NAN, INF, 10**400)]
        wrong += [("max_grad_norm", value, TypeError) for value in ("1", None, True, [1.0])]
        check_rejected(partial(make, use_clip_grad=use_clip_grad), wrong)
    wrong = [
        *[(name, value, TypeError) for name in ("use_clip_grad", "local_norm") for value in (1, 0, None, "False")],
        *[("gradient_accumulation_steps", value, ValueError) for value in (0, -1)],
        *[("gradient_accumulation_steps", value, TypeError) for value in (True, 2.0, "2", None)],
        *[("ema_decay", value, ValueError) for value in (0, 0.0, 1, 1.0, -0.5, NAN, INF)],
        *[("ema_decay", value, TypeError) for value in (True, "0.9", [0.9])],
    ]
    check_rejected(make, wrong)


@pytest.mark.clause("MINDFORMERS-network", "MINDFORMERS-optimizer")
def test_network_and_optimizer_are_validated_as_in_the_base_class():
    """A tuple of losses is a TypeError."""
    network, optimizer = linear(), Recorder()
    network.vjp = lambda _params, x: ((array(1), array(2)), lambda _seed: [x])
    with pytest.raises(TypeError, match="one array"):
        MFTrainOneStepCell(network, optimizer)(FINE)
    assert optimizer.calls == []
    check_rejected(make, [("network", None, TypeError), ("optimizer", None, TypeError)])
    assert issubclass(MFTrainOneStepCell, TrainOneStepWithLossScaleCell)


@pytest.mark.clause("MINDFORMERS-outputs", "MINDFORMERS-loss", "MINDFORMERS-overflow", "MINDFORMERS-global-norm")
def test_a_step_returns_five_values():
    """All five are arrays of shape (), except that the norm is None without clipping."""
    network = linear([1, 2])
    out = MFTrainOneStepCell(network, optimizers.SGD(network, 0.5), scale_sense=8)(FINE)
    assert out._fields == FIVE
    assert bits(out[:4]) == bits([array(-3), np.asarray(False), array(8), array(0.5)])
    assert out.global_norm is None
    assert bits(network.params) == bits([array([0.5, 3])])


@pytest.mark.clause("MINDFORMERS-outputs", "MINDFORMERS-local-norm", "MINDFORMERS-size", "MINDFORMERS-global-norm")
@pytest.mark.parametrize("scale", [1, 3.0, 2.0**20])
def test_a_step_with_local_norms_returns_seven_values(scale):
    """The last two values are the norm and the number of elements of each gradient."""
    cell = MFTrainOneStepCell(linear([1, 1], [[1, 1], [1, 1]]), Recorder(), True, 1.0, scale, True)
    out = cell(array([3, 4]), np.zeros((2, 2), "float32"))
    assert out._fields == (*FIVE, "local_norm", "size")
    assert bits(out[4:]) == bits([array(5), array([5, 0]), array([2, 4], "int64")])
    out = MFTrainOneStepCell(linear(), Recorder(), local_norm=True)(array([3, 4]))
    assert (len(out), out.global_norm) == (7, None)


@pytest.mark.clause("MINDFORMERS-overflow")
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("make", [bool, np.asarray])
def test_overflow_is_the_result_of_process_loss_scale(skip, make):
    """The base class returns the detected overflow instead."""

    class Subclass(MFTrainOneStepCell):
        def process_loss_scale(self, overflow):
            super().process_loss_scale(overflow)
            return make(skip)

    optimizer = Recorder()
    cell = Subclass(linear(), optimizer, scale_sense=DynamicLossScaleUpdateCell(8, 2, 1))
    outs = [cell(x) for x in (FINE, BAD)]
    assert bits([out.overflow for out in outs]) == bits([np.asarray(skip)] * 2)
    assert [out.loss_scale for out in outs] == [16, 8]
    assert len(optimizer.calls) == (0 if skip else 2)


@pytest.mark.clause("MINDFORMERS-overflow", "MINDSPORE-detectors", "MINDSPORE-subclasses")
@pytest.mark.parametrize(("detector", "overflow"), [(GradientScan(), False), (StatusRegister(), True)])
def test_a_status_register_observes_the_scaled_gradients(detector, overflow):
    """A subclass that masks the checked gradients hides an infinity from a scan, but not from a register."""

    class Subclass(MFTrainOneStepCell):
        def get_overflow_status(self, status, compute_output):
            return super().get_overflow_status(status, [FINE])

    assert Subclass(linear(), Recorder(), detector=detector)(BAD).overflow == overflow


@pytest.mark.clause("MINDFORMERS-float32-gradients", "MINDFORMERS-optimizer")
@pytest.mark.parametrize(("dtype", "wide"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_16_bit_gradients_reach_the_optimizer_as_float32(dtype, wide):
    """With a scale of 2**15, a float16 gradient of 2**-28 is not lost."""
    optimizer = Recorder()
    MFTrainOneStepCell(linear([1, 1], dtype=dtype), optimizer, scale_sense=2.0**15)(array([2.0**-28, 1]))
    assert bits(optimizer.calls[0]) == bits([array([2.0**-28, 1], wide)])


@pytest.mark.clause("MINDFORMERS-clip", "MINDFORMERS-global-norm")
@pytest.mark.parametrize(
    ("limit", "gradients", "clipped", "norm"),
    [
        (1, [3, 4], [0.5999999046325684, 0.7999998331069946], 5),
        (1, [0.3, 0.4], [0.2999997138977051, 0.39999961853027344], 0.5),
        (5, [3, 4], [2.999999523162842, 3.9999992847442627], 5),
        (100, [3, 4], [3, 4], 5),
        (1e-6, [3e-7, 4e-7], [1.5e-7, 2e-7], 5e-7),
        (1, [0, 0], [0, 0], 0),
    ],
)
def test_clipping_is_that_of_mindformers(limit, gradients, clipped, norm):
    """The returned norm is the one before clipping, also below the limit."""
    optimizer = Recorder()
    out = MFTrainOneStepCell(linear(), optimizer, True, limit, 1024)(array(gradients))
    assert bits([out.overflow, out.global_norm]) == bits([np.asarray(False), array(norm)])
    assert bits(optimizer.calls[0]) == bits([array(clipped)])


@pytest.mark.clause("MINDFORMERS-global-norm")
def test_the_norm_is_returned_on_an_overflow_too():
    """The optimizer is not called."""
    for x, norm in ((array([INF, 1]), INF), (array([NAN, 1]), NAN)):
        optimizer = Recorder()
        out = MFTrainOneStepCell(linear(), optimizer, use_clip_grad=True)(x)
        assert bits([out.overflow, out.global_norm]) == bits([np.asarray(True), array(norm)])
        assert optimizer.calls == []


@pytest.mark.clause("MINDFORMERS-global-norm", "MINDFORMERS-local-norm", "REPLICAS-agreed-norm", "REPLICAS-local-norm")
def test_the_global_norm_is_that_of_the_mean_over_replicas():
    """The local norms are those of this replica. The mean is computed after unscaling and before clipping."""

    class Pair:
        mean = staticmethod(lambda tree: [(leaf + array([3, 4])) / 2 for leaf in tree])
        agree = staticmethod(SINGLE_REPLICA.agree)
        check_same = staticmethod(SINGLE_REPLICA.check_same)

    optimizer = Recorder()
    out = MFTrainOneStepCell(linear(), optimizer, True, 100.0, 8, True, communicator=Pair())(array([9, 12]))
    assert bits(out[4:6]) == bits([array(10), array([15])])
    assert bits(optimizer.calls[0]) == bits([array([6, 8])])


@pytest.mark.clause("MINDFORMERS-learning-rate", "STEP-learning-rate")
@pytest.mark.parametrize("make", [optimizers.SGD, optimizers.Momentum, optimizers.AdamW])
def test_a_skipped_step_does_not_advance_the_schedule(make):
    """The rate is a number, a list or a function of the applied steps, over the steps F O F F."""
    schedules = [
        (0.5, [0.5, 0.5, 0.5, 0.5]),
        ([0.5, 0.25, 0.125], [0.5, 0.25, 0.25, 0.125]),
        (lambda count: 1 / (1 + count), [1, 0.5, 0.5, 1 / 3]),
    ]
    for learning_rate, reported in schedules:
        network = linear()
        cell = MFTrainOneStepCell(network, make(network, learning_rate), scale_sense=8)
        for step, expected in zip("FOFF", reported, strict=True):
            before = np.array(network.params[0])
            rate = cell(data(step)).learning_rate
            assert bits([rate]) == bits([array(expected)])
            if make is optimizers.SGD and step == "F":
                assert bits(network.params) == bits([before - rate * FINE])


@pytest.mark.clause("MINDFORMERS-learning-rate")
def test_a_changed_rate_is_reported():
    """The rate is read at every step, and earlier reports are copies."""
    network = linear(dtype="float64")
    optimizer = optimizers.SGD(network, 0.1)
    cell = MFTrainOneStepCell(network, optimizer)
    rates = [cell(FINE).learning_rate]
    for changed in (0.125, [9, 9, 0.25]):
        optimizer.learning_rate = changed
        rates.append(cell(FINE).learning_rate)
    assert bits(rates) == bits([array(rate, "float64") for rate in (0.1, 0.125, 0.25)])


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize("rate", [0.5, 1, array(0.5), array(0.5, "float64"), np.float32(0.5)])
def test_the_rate_of_any_optimizer_is_an_array_of_shape_empty(rate):
    """A callable may have a `learning_rate`, a number or an array; without one, None is returned."""
    optimizer = Recorder()
    cell = MFTrainOneStepCell(linear(), optimizer)
    assert cell(FINE).learning_rate is None
    optimizer.learning_rate = rate
    reported = cell(FINE).learning_rate
    assert (type(reported), reported.shape, float(reported)) == (np.ndarray, (), float(rate))
    reported[...] = 7
    assert optimizer.learning_rate == rate != 7
