"""`MFTrainOneStepCell`: gradient accumulation and the moving average of the parameters."""

import autograd.numpy as anp
import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, input_of, linear

from ampscale import Network, StepStatus, optimizers
from ampscale.core.replicas import Agreement, SingleReplica
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell

INF, NAN = float("inf"), float("nan")


def dynamic_scale():
    """Return an update cell with a scale of 8 that grows at every finite step."""
    return DynamicLossScaleUpdateCell(8, 2, 1)


@pytest.mark.clause("MINDFORMERS-accumulation")
@pytest.mark.parametrize(("calls", "use_clip_grad"), [(2, True), (4, True), (4, False)])
def test_micro_batches_equal_one_call_on_the_whole_batch(calls, use_clip_grad):
    """The loss is a mean over small integers. Parameters, moments, norms and scale are equal bit for bit over three steps."""
    rows = np.arange(48, dtype=np.float32).reshape(3, 8, 2) % 5
    targets = np.arange(24, dtype=np.float32).reshape(3, 8) % 3

    def train(count):
        network = Network(lambda params, x, y: anp.mean((anp.dot(x, params[0]) - y) ** 2), [array([1, -2])])
        optimizer = optimizers.Momentum(network, 2.0**-6, 0.5)
        cell = MFTrainOneStepCell(
            network, optimizer, use_clip_grad, 0.5, dynamic_scale(), local_norm=True, gradient_accumulation_steps=count
        )
        for x, y in zip(rows, targets, strict=True):
            for micro_batch in zip(np.split(x, count), np.split(y, count), strict=True):
                output = cell(*micro_batch)
        norms = [output.local_norm, array(0) if output.global_norm is None else output.global_norm]
        return bits([*network.params, *optimizer.state.moments[0], output.loss_scale, *norms])

    assert train(calls) == train(1)


@pytest.mark.clause("MINDFORMERS-accumulation", "MINDFORMERS-accumulation-scale")
def test_incomplete_steps_change_no_parameters():
    """
    Each call returns its own loss, overflow flag and local norms, but no global norm. Rate and scale are unchanged.

    Their reports have the status ACCUMULATED. One call with an overflow makes the whole step an overflow.
    """
    network = linear([1, 2])
    optimizer = optimizers.SGD(network, [0.5, 0.25])
    cell = MFTrainOneStepCell(
        network, optimizer, use_clip_grad=True, scale_sense=dynamic_scale(), local_norm=True, gradient_accumulation_steps=3
    )
    outputs = [cell(x) for x in (array([3, 4]), array([INF, 1]))]
    assert bits(network.params) == bits([array([1, 2])])
    assert [output[:4] for output in outputs] == [(11, False, 8, 0.5), (INF, True, 8, 0.5)]  # loss, overflow, scale, rate
    assert [output.global_norm for output in outputs] == [None, None]
    assert (cell.last_step.status, cell.last_step.finite, cell.last_step.applied) == (StepStatus.ACCUMULATED, False, False)
    cell(array([1, 1]))
    assert (cell.last_step.status, cell.last_step.scale, cell.last_step.next_scale) == (StepStatus.OVERFLOW, 8, 4)
    assert cell.last_step.global_norm == INF
    assert [len(output) for output in outputs] == [7, 7]
    assert bits([outputs[0].local_norm, outputs[0].size]) == bits([array([5]), array([2], "int64")])


@pytest.mark.clause("MINDFORMERS-accumulation")
@pytest.mark.parametrize("present", [0, 1])
def test_a_missing_gradient_counts_as_zero(present):
    """If one of two calls has no gradient, the mean is half of the gradient of the other call."""
    network = linear([1, 2])
    vjp = network.vjp

    def vjp_in_one_call(params, x, call):
        loss, pullback = vjp(params, x)
        return loss, (pullback if call == present else lambda _seed: [None])

    network.vjp = vjp_in_one_call
    optimizer = Recorder()
    cell = MFTrainOneStepCell(network, optimizer, gradient_accumulation_steps=2)
    for call in range(2):
        cell(array([4, 6]), call)
    assert bits(optimizer.calls[0]) == bits([array([2, 3])])


@pytest.mark.clause("MINDFORMERS-accumulation-scale", "MINDFORMERS-accumulation", "MINDFORMERS-scale-cell")
@pytest.mark.parametrize(("bad", "x"), list(enumerate([BAD, array([1, NAN]), array([-INF, 1])])), ids=["first", "second", "last"])
def test_an_overflow_in_any_micro_batch_skips_the_step(bad, x):
    """The last call reports the overflow, the scale backs off once, and the next step starts without accumulated gradients."""
    optimizer = Recorder()
    cell = MFTrainOneStepCell(linear(), optimizer, scale_sense=DynamicLossScaleUpdateCell(8, 2, 9), gradient_accumulation_steps=3)
    outputs = [cell(x if index == bad else FINE) for index in range(3)]
    assert [bool(output.overflow) for output in outputs] == [index in (bad, 2) for index in range(3)]
    assert [float(output.loss_scale) for output in outputs] == [8, 8, 4]
    assert optimizer.calls == []
    outputs = [cell(FINE) for _ in range(3)]
    assert bits(optimizer.calls[0]) == bits([FINE])
    assert [float(output.loss_scale) for output in outputs] == [4, 4, 4]


@pytest.mark.clause("MINDFORMERS-accumulation", "REPLICAS-same-decision")
def test_an_overflow_on_another_replica_skips_the_step():
    """The replicas exchange their flags in the last call of a step."""

    class Pair(SingleReplica):
        def agree(self, finite, state, gradients, *, norm=False):
            return Agreement(finite & False, has_gradients=True)

    cell = MFTrainOneStepCell(linear(), Recorder(), gradient_accumulation_steps=2, communicator=Pair())
    assert [bool(cell(FINE).overflow) for _ in range(4)] == [False, True, False, True]


@pytest.mark.clause("MINDFORMERS-accumulation-scale", "MINDSPORE-subclasses")
def test_an_overflow_reported_by_a_subclass_skips_the_step():
    """The overflow counts although all gradients are finite, even after the state was saved and loaded."""

    class Subclass(MFTrainOneStepCell):
        def get_overflow_status(self, status, compute_output):
            return np.asarray(self.result)

    optimizer = Recorder()
    cell, resumed = (Subclass(linear(), optimizer, gradient_accumulation_steps=2) for _ in range(2))
    cell.result, resumed.result = True, False
    assert cell(FINE).overflow
    resumed.load_state_dict(cell.state_dict())
    cell.result = False
    assert cell(FINE).overflow
    assert resumed(FINE).overflow
    assert optimizer.calls == []
    cell(FINE)
    assert not cell(FINE).overflow


@pytest.mark.clause("MINDFORMERS-ema")
def test_the_average_is_updated_at_applied_steps_only():
    """The initial average equals the parameters; an update gives decay * average + (1 - decay) * parameters."""
    assert MFTrainOneStepCell(linear(), Recorder()).ema_params is None
    network = linear([1, 2])
    cell = MFTrainOneStepCell(network, optimizers.SGD(network, 0.5), scale_sense=8, ema_decay=0.75)
    assert bits(cell.ema_params) == bits([array([1, 2])])
    averages = []
    for step in "OFOF":
        cell(input_of(step))
        averages.append(bits(cell.ema_params))
    first = array([0.75 * 1 + 0.25 * 0.5, 0.75 * 2 + 0.25 * 3])
    second = array([0.75, 0.75]) * first + array([0.25 * 0, 0.25 * 4])
    assert averages == [bits([array([1, 2])]), bits([first]), bits([first]), bits([second])]


@pytest.mark.clause("MINDFORMERS-ema")
@pytest.mark.parametrize(("dtype", "average_dtype"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_the_average_is_a_copy_in_at_least_float32(dtype, average_dtype):
    """16-bit parameters are averaged in float32. Writing into the average leaves the parameters unchanged."""
    network = linear([1, 2], dtype=dtype)
    cell = MFTrainOneStepCell(network, optimizers.SGD(network, 0.5), ema_decay=2.0**-12)
    cell.ema_params[0][...] = 0
    assert bits(network.params) == bits([array([1, 2], dtype)])
    cell(FINE)
    assert bits(cell.ema_params) == bits([array([0.5, 3], average_dtype) * (1 - 2.0**-12)])


@pytest.mark.clause("MINDFORMERS-ema")
def test_averages_do_not_warn_about_underflow():
    """The average of a subnormal parameter is rounded."""
    network = linear([2.0**-149, 1])
    cell = MFTrainOneStepCell(network, Recorder(), ema_decay=0.75)
    with np.errstate(all="raise"):
        cell(FINE)
    assert bits(cell.ema_params) == bits([array([2.0**-149, 1])])
