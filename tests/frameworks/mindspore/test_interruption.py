"""Interruptions of a cell: after an error between two writes, only a successful load allows further steps."""

from unittest.mock import Mock

import pytest
from frameworks.networks import FINE, Recorder, array, linear

import ampscale
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell
from ampscale.frameworks.mindspore.interruption import check_not_interrupted, guarded_load, guarded_step


class Cell:
    """Object with decorated methods that count *writes*, and then raise *error* or return."""

    def __init__(self):
        self._writes, self._interrupted = 0, None

    def _run(self, writes, error):
        self._writes += writes
        if error is not None:
            raise error
        return "done"

    step, load = guarded_step(_run), guarded_load(_run)


@pytest.mark.clause("MINDSPORE-cell-interrupted")
def test_an_error_after_a_write_interrupts_a_step():
    """After an error before the first write, the cell can be used."""
    cell = Cell()
    with pytest.raises(ValueError, match="early"):
        cell.step(0, ValueError("early"))
    assert cell.step(1, None) == "done"
    with pytest.raises(KeyboardInterrupt):
        cell.step(1, KeyboardInterrupt())
    for call in (lambda: cell.step(0, None), lambda: check_not_interrupted(cell)):
        with pytest.raises(RuntimeError, match=r"the last step at .* was interrupted while it wrote its results"):
            call()


@pytest.mark.clause("MINDSPORE-cell-interrupted")
def test_only_a_load_that_succeeds_ends_an_interruption():
    """A rejected load changes nothing; a load that fails while it writes interrupts the cell."""
    cell = Cell()
    with pytest.raises(OSError, match="disk"):
        cell.load(1, OSError("disk"))
    assert cell._interrupted
    for writes, error in ((0, TypeError("rejected")), (0, OSError("disk")), (1, OSError("disk"))):
        with pytest.raises(type(error)):
            cell.load(writes, error)
        assert cell._interrupted
    cell.load(1, None)
    assert not cell._interrupted
    with pytest.raises(ValueError, match="rejected"):
        cell.load(0, ValueError("rejected"))
    with pytest.raises(OSError, match="disk"):
        cell.load(0, OSError("disk"))
    assert not cell._interrupted


class OwnConstruct(TrainOneStepWithLossScaleCell):
    """Cell with its own `construct`, which is not decorated, and which leaves the scale unchanged."""

    def construct(self, *inputs):
        _, status, scaled, sense = self.compute_gradients(*inputs)
        gradients = ampscale.unscale(scaled, sense)
        return self.apply_gradients(gradients, self.get_overflow_status(status, gradients))


@pytest.mark.clause("MINDSPORE-cell-interrupted", "MINDSPORE-subclasses")
@pytest.mark.parametrize("cell", [TrainOneStepWithLossScaleCell, OwnConstruct])
def test_an_optimizer_that_raises_interrupts_a_cell_with_a_fixed_scale(cell):
    """The optimizer may have written a parameter before it raises. A `construct` that a subclass overrides is interrupted too."""
    broken = cell(linear([1, 2]), Mock(side_effect=OSError("no step today"), spec=Recorder()), array(8.0))
    with pytest.raises(OSError, match="no step today"):
        broken(FINE)
    with pytest.raises(RuntimeError, match="interrupted while it wrote"):
        broken.state_dict()


@pytest.mark.clause("MINDSPORE-cell-interrupted", "STEP-resume")
def test_an_update_cell_that_fails_to_load_interrupts_its_cell():
    """Any error except a TypeError or ValueError is an interruption. The scale is not loaded."""
    update_cell = DynamicLossScaleUpdateCell(8, 2, 1)
    cell = TrainOneStepWithLossScaleCell(linear([1, 2]), Recorder(), update_cell)
    saved = {**cell.state_dict(), "scale_sense": array(32)}
    update_cell.load_state_dict = Mock(side_effect=OSError("no disk today"))
    with pytest.raises(OSError, match="no disk today"):
        cell.load_state_dict(saved)
    assert cell.scale_sense == 8
    with pytest.raises(RuntimeError, match="interrupted while it wrote"):
        cell(FINE)
