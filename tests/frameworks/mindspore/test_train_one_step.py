"""`TrainOneStepWithLossScaleCell`: results and effects of a step."""

import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, input_of, linear

from ampscale import optimizers
from ampscale.core.replicas import SingleReplica
from ampscale.core.trees import leaves
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, TrainOneStepWithLossScaleCell

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("MINDSPORE-cell-signature", "MINDSPORE-cell-loss", "MINDSPORE-cell-outputs")
@pytest.mark.clause("MINDSPORE-cell-overflow", "MINDSPORE-cell-loss-scale")
def test_a_step_returns_loss_overflow_and_loss_scale():
    """The result is a named tuple of three arrays. All inputs reach the network unchanged and in order."""
    optimizer = Recorder()
    cell = TrainOneStepWithLossScaleCell(linear([1, 2], [[10], [20]]), optimizer, DynamicLossScaleUpdateCell(8, 2, 1))
    output = cell(array([3, 4]), array([[5], [6]]))
    assert output._fields == ("loss", "overflow", "loss_scale")
    assert bits(output) == bits([array(3 + 8 + 50 + 120), np.asarray(False), array(16)])
    assert [type(value) for value in output] == [np.ndarray] * 3
    assert bits(optimizer.calls[0]) == bits([array([3, 4]), array([[5], [6]])])


@pytest.mark.clause("MINDSPORE-cell-last-step", "STEP-report")
def test_last_step_is_the_report_of_the_last_step():
    """It has copies of the loss, both scales and the learning rate, and the flags of the step. It is None before any step."""
    network = linear([1, 2])
    cell = TrainOneStepWithLossScaleCell(network, optimizers.SGD(network, 0.5), DynamicLossScaleUpdateCell(8, 2, 1))
    assert cell.last_step is None
    reports = []
    for x in (FINE, BAD):
        cell(x)
        reports.append(cell.last_step)
    assert reports[0].loss == cell.network(FINE) + 0.5 * np.sum(FINE**2)
    assert [(report.finite, report.applied, report.status) for report in reports] == [(True, True, 0), (False, False, 1)]
    assert [(report.scale, report.next_scale, report.learning_rate) for report in reports] == [(8, 16, 0.5), (16, 8, 0.5)]
    assert all(report.global_norm is None and report.status.dtype == np.int32 for report in reports)


@pytest.mark.clause("MINDSPORE-cell-loss")
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_the_returned_loss_is_unscaled(dtype):
    """The loss keeps its dtype and is computed with the parameters before the update, even if it is infinite or NaN."""
    network = linear([1, 2], dtype=dtype)
    cell = TrainOneStepWithLossScaleCell(network, optimizers.SGD(network, 0.25), array(1024))
    losses = [cell(x).loss for x in (FINE, array([1, 1]), array([INF, 1]), array([NAN, 1]), array([1, 1]))]
    assert bits(losses) == bits([array(value, dtype) for value in (-3, 0.75 + 2.5, INF, NAN, 0.5 + 2.25)])


@pytest.mark.clause("MINDSPORE-cell-loss", "MINDSPORE-cell-loss-scale")
def test_a_vector_of_losses_keeps_its_shape():
    """The output cotangent of each loss is the scale."""
    network = linear([2, 3])
    network.vjp = lambda params, x: (params[0] * x, lambda seed: [x * seed])
    optimizer = Recorder()
    output = TrainOneStepWithLossScaleCell(network, optimizer, array(8))(array([5, 7]))
    assert bits([output.loss, *optimizer.calls[0]]) == bits([array([10, 21]), array([5, 7])])


@pytest.mark.clause("MINDSPORE-cell-scale-array", "MINDSPORE-cell-snapshot")
def test_passed_and_returned_scales_are_copies():
    """Later steps do not change these scales, and writing into them does not change the cell."""
    passed = array([8])
    cell = TrainOneStepWithLossScaleCell(linear([1, 2]), Recorder(), passed)
    passed[...] = 2
    cell(FINE).loss_scale[...] = 4
    assert cell(FINE).loss_scale == 8
    cell = TrainOneStepWithLossScaleCell(linear([1, 2]), Recorder(), DynamicLossScaleUpdateCell(8, 2, 1))
    scales = [cell(FINE).loss_scale for _ in range(3)]
    assert scales == [16, 32, 64]
    scales[-1][...] = 1
    assert cell(BAD).loss_scale == 32


@pytest.mark.clause("MINDSPORE-cell-skip")
@pytest.mark.parametrize("make", [optimizers.SGD, optimizers.Momentum, optimizers.AdamW])
def test_an_overflow_changes_nothing_in_the_optimizer(make):
    """After the steps FOOF, weights, master weights, moments, step count and schedule equal those after FF bit for bit."""

    def train(pattern):
        network = linear([1, 2], dtype="float16")
        optimizer = make(network, [0.5, 0.25, 0.125])
        cell = TrainOneStepWithLossScaleCell(network, optimizer, array(8))
        states = []
        for step in pattern:
            cell(input_of(step))
            states.append(bits(leaves((network.params, tuple(optimizer.state)))))
        return states, optimizer

    skipped, optimizer = train("FOOF")
    plain, _ = train("FF")
    assert skipped == [plain[0], plain[0], plain[0], plain[1]]
    assert (optimizer.state.count, optimizer.learning_rate) == (2, 0.125)


@pytest.mark.clause("MINDSPORE-cell-overflow", "REPLICAS-mean-overflows", "REPLICAS-same-decision")
def test_replicas_average_gradients_before_the_check():
    """The gradients of this replica are finite, but their mean over the replicas is infinite."""

    class Pair(SingleReplica):
        def mean(self, tree):
            return [leaf + array(INF) for leaf in tree]

    assert TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8), communicator=Pair())(FINE).overflow


class CustomUpdateCell:
    """Update cell that writes 100 plus the number of its calls as the scale, and returns *result*."""

    def __init__(self, result, first=8):
        self.result, self.first, self.calls = result, first, []

    def get_loss_scale(self):
        return self.first

    def __call__(self, loss_scale, overflow):
        self.calls.append((float(loss_scale), bool(overflow)))
        loss_scale[...] = 100 + len(self.calls)
        return self.result


@pytest.mark.clause("MINDSPORE-cell-scale-cell")
def test_the_scale_starts_at_the_loss_scale_of_the_update_cell():
    """A number or an array is accepted; the scale is always float32 of shape ()."""
    update_cells = [CustomUpdateCell(False, first) for first in (8, 8.0, array(8), array(8, "float64"), array([8]))]
    for update_cell in (FixedLossScaleUpdateCell(8), DynamicLossScaleUpdateCell(8, 2, 2), *update_cells):
        network = linear()
        cell = TrainOneStepWithLossScaleCell(network, Recorder(), update_cell)
        assert bits([cell.scale_sense]) == bits([array(8)])
        cell(FINE)
        assert bits(network.seeds) == bits([array(8)])


@pytest.mark.clause("MINDSPORE-process-loss-scale")
@pytest.mark.parametrize("overflow", [True, False, np.True_, np.asarray(True), np.asarray(False)], ids=repr)
def test_process_loss_scale_returns_its_input(overflow):
    """The result is the same object. The scale changes only if there is an update cell."""
    for scale_sense, after in ((array(8), 8), (DynamicLossScaleUpdateCell(8, 2, 1), 4 if overflow else 16)):
        cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
        assert cell.process_loss_scale(overflow) is overflow
        assert cell.scale_sense == after


@pytest.mark.clause("MINDSPORE-process-loss-scale")
@pytest.mark.parametrize("scale_sense", [array(8), DynamicLossScaleUpdateCell(8, 2, 1)], ids=["array", "update cell"])
def test_process_loss_scale_rejects_an_invalid_flag(scale_sense):
    """The scale is unchanged."""
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
    for flag, error in ((None, TypeError), (1, TypeError), ("x", TypeError), (np.asarray([True]), ValueError)):
        with pytest.raises(error, match="overflow must"):
            cell.process_loss_scale(flag)
    assert cell.scale_sense == 8


@pytest.mark.clause("MINDSPORE-cell-scale-cell", "MINDSPORE-update-cell-call", "MINDSPORE-process-loss-scale")
@pytest.mark.parametrize("result", [np.asarray(True), np.asarray(False), True, False], ids=repr)
def test_a_custom_update_cell_updates_the_scale_and_decides_about_the_step(result):
    """The update cell is called once per step, with the scale itself and the flag. If it returns False, the optimizer runs."""
    update_cell = CustomUpdateCell(result)
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), update_cell)
    outputs = [cell(x) for x in (FINE, BAD, FINE)]
    assert update_cell.calls == [(8, False), (101, True), (102, False)]
    assert [output.loss_scale for output in outputs] == [101, 102, 103]
    assert [bool(output.overflow) for output in outputs] == [False, True, False]
    assert len(cell.optimizer.calls) == (0 if result else 3)
