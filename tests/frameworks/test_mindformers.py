"""`MFTrainOneStepCell`: its arguments, its five or seven outputs, and clipping."""

import inspect

import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, data, linear
from frameworks.published import TRACES
from frameworks.refusals import refused

from ampscale import optimizers
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, FixedLossScaleManager, TrainOneStepWithLossScaleCell
from ampscale.frameworks.mindspore.detectors import GradientScan, StatusRegister

INF, NAN = float("inf"), float("nan")
FIVE = ("loss", "overflow", "loss_scale", "learning_rate", "global_norm")


# Arguments


@pytest.mark.clause("MINDFORMERS-signature")
def test_the_documented_parameters_and_defaults():
    """In the documented order, and keywords beyond them."""
    parameters = inspect.signature(MFTrainOneStepCell).parameters
    given = [(name, parameter.default) for name, parameter in parameters.items()]
    required = inspect.Parameter.empty
    documented = [("use_clip_grad", False), ("max_grad_norm", 1.0), ("scale_sense", 1.0), ("local_norm", False)]
    assert given[:6] == [("network", required), ("optimizer", required), *documented]
    assert given[6:8] == [("gradient_accumulation_steps", 1), ("ema_decay", None)]
    assert list(parameters.values())[-1].kind is inspect.Parameter.VAR_KEYWORD


@pytest.mark.clause("MINDFORMERS-keywords")
@pytest.mark.parametrize("unknown", ["foo", "ema", "use_grad_clip", "parallel_config"])
def test_an_unknown_keyword_is_refused(unknown):
    """The TypeError names it and lists the known ones."""
    with pytest.raises(TypeError, match=unknown) as refusal:
        MFTrainOneStepCell(linear(), Recorder(), **{unknown: 1})
    known = [name for name in inspect.signature(MFTrainOneStepCell).parameters if name not in ("network", "optimizer", "kwargs")]
    assert all(repr(name) in str(refusal.value) for name in known)


@pytest.mark.clause("MINDFORMERS-scale-number")
@pytest.mark.parametrize("value", [1, 8, 1.0, 0.5, 2.0**32, 16777217])
def test_a_number_is_a_float32_scale_of_shape_empty(value):
    """An int or a float; without one the scale is 1."""
    network = linear()
    assert bits([MFTrainOneStepCell(network, Recorder(), scale_sense=value)(FINE).loss_scale]) == bits([array(value)])
    assert bits(network.seeds) == bits([array(value)])
    assert bits([MFTrainOneStepCell(linear(), Recorder()).scale_sense]) == bits([array(1)])


@pytest.mark.clause("MINDFORMERS-scale-array", "MINDFORMERS-loss-scale")
@pytest.mark.parametrize("scale", [array(8), array([8]), array(8, "float64"), array([8], "float64")])
def test_a_scale_array_is_changed_by_set_sense_scale_and_by_no_step(scale):
    """Shape and dtype stay."""
    cell = MFTrainOneStepCell(linear(), Recorder(), scale_sense=scale)
    assert [bits([cell(x).loss_scale]) for x in (FINE, BAD)] == [bits([scale])] * 2
    cell.set_sense_scale(scale + scale)
    assert bits([cell(FINE).loss_scale]) == bits([scale + scale])


@pytest.mark.clause("MINDFORMERS-scale-type")
@pytest.mark.parametrize("value", [True, None, "8", [8.0], FixedLossScaleManager(), array(8, "float16"), array(8, "int32")])
def test_a_scale_of_another_type_is_refused(value):
    """Bools, strings, None, lists, managers, and arrays that are not float32 or float64."""
    came = str(value.dtype) if hasattr(value, "dtype") else repr(value)
    with refused(TypeError, "scale_sense", came):
        MFTrainOneStepCell(linear(), Recorder(), scale_sense=value)


@pytest.mark.clause("MINDFORMERS-scale-shape")
@pytest.mark.parametrize("shape", [(2,), (1, 1), (0,)])
def test_a_scale_of_another_shape_is_refused(shape):
    """A ValueError says which came."""
    with refused(ValueError, "scale_sense", str(shape)):
        MFTrainOneStepCell(linear(), Recorder(), scale_sense=np.ones(shape, "float32"))


@pytest.mark.clause("MINDFORMERS-scale-checked")
@pytest.mark.parametrize("value", [NAN, INF, -INF, 0, 0.0, -8, 1e39, 1e-50])
def test_a_scale_is_positive_and_finite(value):
    """As a number, and as an array unless float64 can hold it."""
    with refused(ValueError, "scale_sense", repr(value)):
        MFTrainOneStepCell(linear(), Recorder(), scale_sense=value)
    if not 0 < value < INF:
        with refused(ValueError, "scale_sense", repr(float(value))):
            MFTrainOneStepCell(linear(), Recorder(), scale_sense=array(value))


@pytest.mark.clause("MINDFORMERS-max-grad-norm")
@pytest.mark.parametrize("use_clip_grad", [True, False])
@pytest.mark.parametrize(
    ("value", "error"),
    [*[(value, ValueError) for value in (0, 0.0, -1.0, NAN, INF)], *[(value, TypeError) for value in ("1", None, True, [1.0])]],
)
def test_the_limit_is_positive_and_finite_also_where_it_is_not_used(use_clip_grad, value, error):
    """Refused with clipping on and off."""
    with refused(error, "max_grad_norm", repr(value)):
        MFTrainOneStepCell(linear(), Recorder(), use_clip_grad, value)


@pytest.mark.clause("MINDFORMERS-signature")
@pytest.mark.parametrize("name", ["use_clip_grad", "local_norm"])
@pytest.mark.parametrize("value", [1, 0, None, "False"])
def test_the_two_switches_are_bools(name, value):
    """Anything else is a TypeError."""
    with refused(TypeError, name, repr(value)):
        MFTrainOneStepCell(linear(), Recorder(), **{name: value})


@pytest.mark.clause("MINDFORMERS-network", "MINDFORMERS-optimizer")
def test_network_and_optimizer_are_those_of_the_base_cell():
    """A tuple of losses is a TypeError; what is no network or no optimizer is refused."""
    network = linear()
    network.vjp = lambda _params, x: ((array(1), array(2)), lambda _seed: [x])
    optimizer = Recorder()
    with pytest.raises(TypeError, match="one array"):
        MFTrainOneStepCell(network, optimizer)(FINE)
    assert optimizer.calls == []
    for arguments, name in (((None, optimizer), "network"), ((network, None), "optimizer")):
        with refused(TypeError, name, "None"):
            MFTrainOneStepCell(*arguments)
    assert issubclass(MFTrainOneStepCell, TrainOneStepWithLossScaleCell)


# Outputs


@pytest.mark.clause("MINDFORMERS-outputs", "MINDFORMERS-loss", "MINDFORMERS-overflow", "MINDFORMERS-global-norm")
def test_a_step_returns_five_values():
    """Arrays of shape (), and None for a norm that was not asked for."""
    network = linear([1, 2])
    out = MFTrainOneStepCell(network, optimizers.SGD(network, 0.5), scale_sense=8)(FINE)
    assert out._fields == FIVE
    assert bits(out[:4]) == bits([array(-3), np.asarray(False), array(8), array(0.5)])
    assert out.global_norm is None
    assert bits(network.params) == bits([array([0.5, 3])])


@pytest.mark.clause("MINDFORMERS-outputs", "MINDFORMERS-local-norm", "MINDFORMERS-size", "MINDFORMERS-global-norm")
@pytest.mark.parametrize("scale", [1, 3.0, 2.0**20])
def test_a_step_with_local_norms_returns_seven_values(scale):
    """A norm with its square root taken, and a count of elements, for each parameter."""
    cell = MFTrainOneStepCell(linear([1, 1], [[1, 1], [1, 1]]), Recorder(), True, 1.0, scale, True)
    out = cell(array([3, 4]), np.zeros((2, 2), "float32"))
    assert out._fields == (*FIVE, "local_norm", "size")
    assert bits(out[4:]) == bits([array(5), array([5, 0]), array([2, 4], "int64")])
    out = MFTrainOneStepCell(linear(), Recorder(), local_norm=True)(array([3, 4]))
    assert (len(out), out.global_norm) == (7, None)


@pytest.mark.clause("MINDFORMERS-loss")
@pytest.mark.parametrize(("x", "loss"), [(FINE, -3), (BAD, INF), (array([NAN, 1]), NAN)])
def test_the_loss_is_the_networks_own(x, loss):
    """Not scaled, not clipped, of the parameters before the update, and as it is on an overflow."""
    network = linear([1, 2], dtype="float16")
    out = MFTrainOneStepCell(network, optimizers.SGD(network, 0.5), use_clip_grad=True, scale_sense=1024)(x)
    assert bits([out.loss]) == bits([array(loss, "float16")])


@pytest.mark.clause("MINDFORMERS-overflow")
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("make", [bool, np.asarray, np.bool_])
def test_overflow_is_the_gate(gate, make):
    """What `process_loss_scale` returned, as an array, where the base cell tells what was detected."""

    class Heir(MFTrainOneStepCell):
        def process_loss_scale(self, overflow):
            super().process_loss_scale(overflow)
            return make(gate)

    optimizer = Recorder()
    cell = Heir(linear(), optimizer, scale_sense=DynamicLossScaleUpdateCell(8, 2, 1))
    outs = [cell(x) for x in (FINE, BAD)]
    assert bits([out.overflow for out in outs]) == bits([np.asarray(gate)] * 2)
    assert [out.loss_scale for out in outs] == [16, 8]
    assert len(optimizer.calls) == (0 if gate else 2)


@pytest.mark.clause("MINDFORMERS-overflow", "MINDSPORE-detectors", "MINDSPORE-heirs")
@pytest.mark.parametrize(("detector", "overflow"), [(GradientScan(), False), (StatusRegister(), True)])
def test_a_register_sees_the_gradients_before_they_are_unscaled(detector, overflow):
    """An heir that cleans what it asks about hides an infinity from a scan, and from a register not."""

    class Heir(MFTrainOneStepCell):
        def get_overflow_status(self, status, compute_output):
            return super().get_overflow_status(status, [FINE])

    assert Heir(linear(), Recorder(), detector=detector)(BAD).overflow == overflow


@pytest.mark.clause("MINDFORMERS-scale-cell", "MINDFORMERS-loss-scale")
@pytest.mark.parametrize(("start", "factor", "window", "pattern", "scales"), TRACES)
@pytest.mark.parametrize("detector", [None, StatusRegister()])
def test_an_update_cell_moves_the_scale_once_a_step(start, factor, window, pattern, scales, detector):
    """The published traces: what is returned is the scale after the step, and stays what it was."""
    network = linear()
    update_cell = DynamicLossScaleUpdateCell(start, factor, window)
    cell = MFTrainOneStepCell(network, Recorder(), scale_sense=update_cell, detector=detector)
    seen = [cell(data(step)).loss_scale for step in pattern]
    assert [float(scale) for scale in seen] == scales[1:]
    assert [float(seed) for seed in network.seeds] == scales[:-1]
    seen[-1][...] = 77
    assert cell.scale_sense == scales[-1]


# Gradients, norms and clipping


@pytest.mark.clause("MINDFORMERS-float32-gradients", "MINDFORMERS-optimizer")
@pytest.mark.parametrize(("dtype", "wide"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_16_bit_gradients_reach_the_optimizer_as_float32(dtype, wide):
    """With a scale of 2**15 one that stands for 2**-28 arrives as 2**-28."""
    optimizer = Recorder()
    MFTrainOneStepCell(linear([1, 1], dtype=dtype), optimizer, scale_sense=2.0**15)(array([2.0**-28, 1]))
    assert bits(optimizer.calls[0]) == bits([array([2.0**-28, 1], wide)])


@pytest.mark.clause("MINDFORMERS-float32-gradients")
def test_gradients_are_divided_and_not_rounded_to_16_bits():
    """A float16 gradient scaled by 3 is divided by 3 in float32."""
    optimizer = Recorder()
    MFTrainOneStepCell(linear([1], dtype="float16"), optimizer, scale_sense=3)(array([0.1]))
    scaled = np.float32(np.float16(np.float32(0.1) * np.float32(3)))
    assert bits(optimizer.calls[0]) == bits([array([scaled / np.float32(3)])])


@pytest.mark.clause("MINDFORMERS-clip", "MINDFORMERS-global-norm")
@pytest.mark.parametrize("scale", [1, 1024])
@pytest.mark.parametrize(
    ("limit", "gradients", "clipped", "norm"),
    [
        (1, [3, 4], [0.5999999046325684, 0.7999998331069946], 5),
        (1, [0.3, 0.4], [0.2999997138977051, 0.39999961853027344], 0.5),
        (5, [3, 4], [2.999999523162842, 3.9999992847442627], 5),
        (100, [3, 4], [3, 4], 5),
        (1e-6, [3e-7, 4e-7], [1.5e-7, 2e-7], 5e-7),
        (1, [0, 0], [0, 0], 0),
        (1, [1e20, 1e20], [0, 0], INF),
    ],
)
def test_clipping_is_mindformers_own(scale, limit, gradients, clipped, norm):
    """Also under the limit; the norm is the one before clipping, and an infinite one is no overflow."""
    optimizer = Recorder()
    out = MFTrainOneStepCell(linear(), optimizer, True, limit, scale)(array(gradients))
    assert bits([out.overflow, out.global_norm]) == bits([np.asarray(False), array(norm)])
    assert bits(optimizer.calls[0]) == bits([array(clipped)])


@pytest.mark.clause("MINDFORMERS-global-norm")
@pytest.mark.parametrize(("x", "norm"), [(array([INF, 1]), INF), (array([NAN, 1]), NAN)])
def test_an_overflow_has_a_norm_too(x, norm):
    """As it is; and the optimizer is not called."""
    optimizer = Recorder()
    out = MFTrainOneStepCell(linear(), optimizer, use_clip_grad=True)(x)
    assert bits([out.overflow, out.global_norm]) == bits([np.asarray(True), array(norm)])
    assert optimizer.calls == []


@pytest.mark.clause("MINDFORMERS-clip", "MINDFORMERS-global-norm")
def test_16_bit_gradients_are_clipped_in_float32():
    """300 and 400 have the norm 500, though their squares are beyond float16."""
    optimizer = Recorder()
    out = MFTrainOneStepCell(linear([1, 1], dtype="float16"), optimizer, True, 500.0)(array([300, 400]))
    assert bits([out.global_norm, *optimizer.calls[0]]) == bits([array(500), array([300, 400])])


@pytest.mark.clause("MINDFORMERS-global-norm", "MINDFORMERS-local-norm", "REPLICAS-agreed-norm", "REPLICAS-local-norm")
def test_the_global_norm_is_of_the_mean_and_the_local_ones_are_not():
    """Over two replicas: the mean is taken after unscaling and before clipping."""

    class Pair:
        mean = staticmethod(lambda tree: [(leaf + array([3, 4])) / 2 for leaf in tree])
        all_finite = staticmethod(lambda flag: flag)

    optimizer = Recorder()
    out = MFTrainOneStepCell(linear(), optimizer, True, 100.0, 8, True, communicator=Pair())(array([9, 12]))
    assert bits(out[4:6]) == bits([array(10), array([15])])
    assert bits(optimizer.calls[0]) == bits([array([6, 8])])
