"""`TrainOneStepWithLossScaleCell.process_loss_scale`, and update cells that others write: who moves the scale, and who skips."""

import numpy as np
import pytest
from frameworks.networks import BAD, FINE, Recorder, array, bits, linear

from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell


def both_kinds():
    """A scale that stays, and one that moves at every step."""
    return array(8), DynamicLossScaleUpdateCell(8, 2, 1)


@pytest.mark.clause("MINDSPORE-process-loss-scale")
@pytest.mark.parametrize("overflow", [True, False, np.True_, np.asarray(True), np.asarray(False)])
def test_process_loss_scale_returns_its_input(overflow):
    """The very object; the scale moves where there is an update cell, and only there."""
    fixed, moving = (TrainOneStepWithLossScaleCell(linear(), Recorder(), sense) for sense in both_kinds())
    assert fixed.process_loss_scale(overflow) is overflow
    assert moving.process_loss_scale(overflow) is overflow
    assert (fixed.scale_sense, moving.scale_sense) == (8, 4 if overflow else 16)


@pytest.mark.clause("MINDSPORE-process-loss-scale")
@pytest.mark.parametrize(
    ("overflow", "error"), [(None, TypeError), (1, TypeError), ("x", TypeError), (np.asarray([True]), ValueError)]
)
@pytest.mark.parametrize("scale_sense", both_kinds())
def test_process_loss_scale_refuses_what_is_no_single_bool(overflow, error, scale_sense):
    """The scale stays."""
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), scale_sense)
    with pytest.raises(error, match="overflow must"):
        cell.process_loss_scale(overflow)
    assert cell.scale_sense == 8


class Custom:
    """An update cell by the protocol alone: it writes the count of its calls, and answers what it was told to."""

    def __init__(self, answer, first=8):
        self.answer, self.first, self.calls = answer, first, []

    def get_loss_scale(self):
        """The first scale."""
        return self.first

    def __call__(self, loss_scale, overflow):
        """Keeps what came, and writes in place."""
        self.calls.append((float(loss_scale), bool(overflow)))
        loss_scale[...] = 100 + len(self.calls)
        return self.answer


@pytest.mark.clause("MINDSPORE-cell-scale-cell", "MINDSPORE-update-cell-call", "MINDSPORE-process-loss-scale")
@pytest.mark.parametrize("answer", [np.asarray(True), np.asarray(False), True, False, np.True_, np.False_])
def test_a_custom_update_cell_moves_the_scale_and_is_the_gate(answer):
    """Called once a step with the live scale and the overflow; its answer skips or lets through, even an overflow."""
    update_cell = Custom(answer)
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), update_cell)
    outs = [cell(x) for x in (FINE, BAD, FINE)]
    assert update_cell.calls == [(8, False), (101, True), (102, False)]
    assert [out.loss_scale for out in outs] == [101, 102, 103]
    assert [bool(out.overflow) for out in outs] == [False, True, False]
    assert len(cell.optimizer.calls) == (0 if answer else 3)


@pytest.mark.clause("MINDSPORE-cell-scale-cell")
@pytest.mark.parametrize("first", [8, 8.0, array(8), array(8, "float64"), array([8])])
def test_the_first_scale_of_an_update_cell_is_a_number_or_an_array(first):
    """The scale is float32 of shape () in either case."""
    cell = TrainOneStepWithLossScaleCell(linear(), Recorder(), Custom(False, first))
    assert bits([cell.scale_sense]) == bits([array(8)])
