"""Subclasses of `TrainOneStepWithLossScaleCell`, with either overflow detector."""

import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, input_of, linear

import ampscale
from ampscale import optimizers
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell
from ampscale.frameworks.mindspore.detectors import GradientScan, StatusRegister

both_detectors = pytest.mark.parametrize("detector", [GradientScan, StatusRegister])


def cell_of(cell=TrainOneStepWithLossScaleCell, *, detector=None):
    """Return a cell over a linear network and a recording optimizer, with a scale of 8 that grows at every finite step."""
    return cell(linear([1, 2]), Recorder(), DynamicLossScaleUpdateCell(8, 2, 1), detector=detector)


def subclass(**methods):
    return type("Subclass", (TrainOneStepWithLossScaleCell,), methods)


class Logged(TrainOneStepWithLossScaleCell):
    """Cell that logs the loss, each call of the three methods below, the backward pass and the optimizer."""

    def construct(self, x):
        self.log = []
        vjp, optimizer = linear([1, 2]).vjp, self.optimizer

        def logged_vjp(params, x):
            def logged_pullback(seed):
                self.log.append(("backward", seed))
                return pullback(seed)

            loss, pullback = vjp(params, x)
            self.log.append(("loss", loss))
            return loss, logged_pullback

        self.network.vjp = logged_vjp
        output = super().construct(x)
        self.log += [("optimizer", call) for call in optimizer.calls]
        return output

    def start_overflow_check(self, pre_cond, compute_input):
        results = super().start_overflow_check(pre_cond, compute_input)
        self.log.append(("start", pre_cond, compute_input, results))
        return results

    def get_overflow_status(self, status, compute_output):
        overflow = super().get_overflow_status(status, compute_output)
        self.log.append(("status", status, compute_output, overflow))
        return overflow

    def process_loss_scale(self, overflow):
        self.log.append(("process", overflow))
        return super().process_loss_scale(overflow)


@pytest.mark.clause("MINDSPORE-subclasses", "MINDSPORE-start-order", "MINDSPORE-status-token", "STEP-order")
@both_detectors
def test_a_step_calls_each_of_the_three_methods_once(detector):
    """The order is loss, start, backward, status, process, optimizer; each method receives the results of earlier ones."""
    cell = cell_of(Logged, detector=detector())
    scale = cell.scale_sense
    cell(FINE)
    assert [name for name, *_ in cell.log] == ["loss", "start", "backward", "status", "process", "optimizer"]
    values_of = {name: values for name, *values in cell.log}
    pre_cond, compute_input, (status_object, returned_input) = values_of["start"]
    status, output, overflow = values_of["status"]
    assert pre_cond is values_of["loss"][0]
    assert compute_input is returned_input is scale
    assert status is status_object
    assert values_of["process"][0] is overflow
    assert bits([*values_of["backward"], *output]) == bits([array(8), FINE])


@pytest.mark.clause("MINDSPORE-get-overflow-status", "MINDSPORE-detectors", "MINDSPORE-status-token", "OVERFLOW-gradient-scan")
@both_detectors
@pytest.mark.parametrize(
    ("compute_output", "overflow"),
    [
        (BAD, True),
        ((FINE, BAD), True),
        ([FINE, {"w": array(float("nan"), "float16")}], True),
        (FINE, False),
        ([FINE, array([1, 2], "int32"), None], False),
        ((), False),
    ],
)
def test_get_overflow_status_returns_a_0d_bool_array(detector, compute_output, overflow):
    """The output may be an array or a pytree, and the status any object, such as False."""
    cell = cell_of(detector=detector())
    for status in (cell.start_overflow_check(array(1), None)[0], False, None):
        assert bits([cell.get_overflow_status(status, compute_output)]) == bits([np.asarray(overflow)])


class Masking(TrainOneStepWithLossScaleCell):
    """Cell that replaces the non-finite gradients before they are checked."""

    def get_overflow_status(self, status, compute_output):
        return super().get_overflow_status(status, [np.nan_to_num(leaf, posinf=0) for leaf in compute_output])


@pytest.mark.clause("MINDSPORE-detectors", "MINDSPORE-subclasses")
@pytest.mark.parametrize(("detector", "overflow"), [(GradientScan, False), (StatusRegister, True)])
def test_a_status_register_reports_a_masked_overflow(detector, overflow):
    """The register records the infinity until the next step; a gradient scan only checks the masked output."""
    cell = cell_of(Masking, detector=detector())
    assert cell(BAD).overflow == overflow
    assert not cell(FINE).overflow


@pytest.mark.clause("MINDSPORE-subclasses", "MINDSPORE-status-token")
@both_detectors
@pytest.mark.parametrize("own_status", [False, array([0] * 8, "int32")], ids=repr)
def test_a_subclass_may_return_its_own_status_object(detector, own_status):
    """In MindSpore's documents, the object is False or eight zeros. A step passes any object on unchanged."""

    class Subclass(Logged):
        def start_overflow_check(self, pre_cond, compute_input):
            super().start_overflow_check(pre_cond, compute_input)
            return own_status, compute_input

    cell, default_cell = cell_of(Subclass, detector=detector()), cell_of()
    for step in "FOF":
        assert bits(cell(input_of(step))) == bits(default_cell(input_of(step)))
        name, status, *_ = cell.log[3]
        assert (name, status is own_status) == ("status", True)


@pytest.mark.clause("MINDSPORE-subclasses")
@pytest.mark.parametrize("other", [array(2), array([2]), array(2, "float64"), 2.0], ids=repr)
def test_a_subclass_may_start_the_backward_pass_from_another_scale(other):
    """The gradients are unscaled by that scale; the cell updates and returns its own scale."""

    class Subclass(Logged):
        def start_overflow_check(self, pre_cond, compute_input):
            return super().start_overflow_check(pre_cond, compute_input)[0], other

    cell = cell_of(Subclass)
    assert cell(FINE).loss_scale == 16
    assert cell.log[2] == ("backward", 2)
    assert bits(cell.optimizer.calls[0]) == bits([FINE])


@pytest.mark.clause("MINDSPORE-subclasses", "MINDSPORE-cell-overflow")
@pytest.mark.parametrize("result", [True, False])
@pytest.mark.parametrize("make", [np.asarray, bool])
def test_a_subclass_may_override_the_overflow_status(result, make):
    """The cell returns the status as an array. If the status is True, the step is skipped and the scale backs off."""
    cell = cell_of(subclass(get_overflow_status=lambda *_: make(result)))
    outputs = [cell(FINE), cell(BAD)]
    assert bits([output.overflow for output in outputs]) == bits([np.asarray(result)] * 2)
    assert all(isinstance(output.overflow, np.ndarray) for output in outputs)
    assert [output.loss_scale for output in outputs] == ([4, 2] if result else [16, 32])
    assert len(cell.optimizer.calls) == (0 if result else 2)


@pytest.mark.clause("MINDSPORE-subclasses", "MINDSPORE-cell-skip", "MINDSPORE-cell-overflow")
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(("make", "functional"), [(np.asarray, True), (bool, True), (np.asarray, False), (bool, False)])
def test_a_subclass_may_decide_which_steps_are_skipped(skip, make, functional):
    """The optimizer runs if `process_loss_scale` returns False; the returned overflow is the detected one."""
    network = linear([1, 2])
    optimizer = optimizers.SGD(network, 0.5)
    cell = subclass(process_loss_scale=lambda *_: make(skip))(
        network, optimizer if functional else lambda grads: optimizer(grads), array(8)
    )
    assert [bool(cell(x).overflow) for x in (FINE, BAD)] == [False, True]
    assert optimizer.state.count == (0 if skip else 2)
    assert bits(network.params) == bits([array([1, 2] if skip else [float("-inf"), 2.5])])


def test_the_decision_to_skip_a_step_must_be_a_bool():
    """The error is raised before the optimizer runs."""
    cell = cell_of(subclass(process_loss_scale=lambda *_: 1))
    with pytest.raises(TypeError, match=r"^skip must be a bool or a bool array, got 1 of type int$"):
        cell(FINE)
    assert not cell.optimizer.calls


@pytest.mark.clause("MINDSPORE-subclasses", "MINDSPORE-get-overflow-status", "MINDSPORE-start-overflow-check")
@both_detectors
def test_a_subclass_may_write_its_own_construct(detector):
    """A `construct` as in MindSpore's tutorials returns the results of the inherited `construct`."""

    class Tutorial(TrainOneStepWithLossScaleCell):
        def construct(self, *inputs):
            loss, status, scaled, sense = self.compute_gradients(*inputs)
            gradients = self.reduce_gradients(ampscale.unscale(scaled, sense))
            cond = self.get_overflow_status(status, gradients)
            skip = self.process_loss_scale(cond)
            assert bool(self.apply_gradients(gradients, skip)) is not bool(cond)
            return loss, cond, np.array(self.scale_sense)

    tutorial, inherited = cell_of(Tutorial, detector=detector()), cell_of()
    for step in "FOOFFOF":
        assert bits(tutorial(input_of(step))) == bits(inherited(input_of(step)))
    assert [bits(call) for call in tutorial.optimizer.calls] == [bits(call) for call in inherited.optimizer.calls]
