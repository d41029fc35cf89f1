"""Update cells, which write the next scale into the array that they are called with."""

import array_api_strict
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.published import SETTINGS, every_pattern, states_of
from frameworks.rejections import check_rejected, rejects
from presets import loops_mindspore

from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell

CELLS = [FixedLossScaleUpdateCell, lambda value: DynamicLossScaleUpdateCell(value, 2, 1)]
both_cells = pytest.mark.parametrize("cell_of", CELLS, ids=["fixed", "dynamic"])


def run_step(cell_and_scale, step):
    cell, scale = cell_and_scale
    cell(scale, np.asarray(step == "O"))


def state_of(cell_and_scale):
    """Return the scale and both counters."""
    cell, scale = cell_and_scale
    return float(scale), cell.cur_iter, cell.last_overflow_iter


@pytest.mark.clause("MINDSPORE-update-cell-call", "MINDSPORE-update-cell-dynamic")
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_call_writes_into_the_array_and_returns_the_overflow(shape, dtype):
    """The same flag is returned; the array keeps its shape and dtype, and contains the scale of the next step."""
    cell, scale = DynamicLossScaleUpdateCell(8, 2, 1), np.full(shape, 8, dtype)
    for overflow, after in ((np.asarray(True), 4), (np.asarray(False), 8), (np.asarray(False), 16)):
        assert cell(scale, overflow) is overflow
        assert bits([scale]) == bits([np.full(shape, after, dtype)])


@pytest.mark.clause("MINDSPORE-update-cell-call")
@both_cells
def test_an_overflow_must_be_a_single_bool(cell_of):
    """Python and NumPy bools and arrays of shape () are returned unchanged; after an error the scale is unchanged."""
    for overflow in (True, False, np.True_, np.asarray(False)):
        assert cell_of(8)(array(8), overflow) is overflow
    cell, scale = cell_of(8), array(8)
    wrong = [("overflow", 1, TypeError), ("overflow", None, TypeError), ("overflow", np.asarray([True]), ValueError)]
    for call in (cell, cell.next_scale):
        check_rejected(lambda _, overflow, call=call: call(scale, overflow), wrong, got=None)
    assert scale == 8


@pytest.mark.clause("MINDSPORE-update-cell-fixed", "MINDSPORE-update-cell-initial")
@both_cells
def test_get_loss_scale_returns_the_initial_scale(cell_of):
    """Calls do not change the initial scale. A fixed cell leaves every scale unchanged."""
    cell, scale = cell_of(0.5), array([8])
    for overflow in (False, False, True, True, True):
        cell(scale, np.asarray(overflow))
        assert cell.get_loss_scale() == 0.5
        assert isinstance(cell, DynamicLossScaleUpdateCell) or bits([scale]) == bits([array([8])])


@pytest.mark.clause(
    "MINDSPORE-update-cell-dynamic", "MINDSPORE-update-cell-skip-infinite-growth", "MINDSPORE-update-cell-reciprocal"
)
@pytest.mark.parametrize("setting", [*SETTINGS, (8, 1.5, 2), (0.5, 2, 2)], ids=str)
def test_the_cell_equals_the_plain_loop_on_every_pattern(setting):
    """Scale and both counters are equal bit for bit."""
    loop = loops_mindspore.DynamicLossScaleUpdateCell(*setting)
    for pattern, states in every_pattern((DynamicLossScaleUpdateCell(*setting), array(setting[0])), run_step, state_of):
        assert states == states_of(loop, pattern, "scale", "cur_iter", "last_overflow_iter"), pattern


@pytest.mark.clause("MINDSPORE-update-cell-reciprocal")
def test_the_reciprocal_for_a_float64_scale_is_a_float64_number():
    """The reciprocal of 3 is inexact, and differs between float32 and float64."""
    scale = array(10, "float64")
    DynamicLossScaleUpdateCell(10, 3, 2)(scale, True)
    assert scale == 10 * (1 / 3)


@pytest.mark.parametrize("name", ["scale_factor", "scale_window"])
def test_constants_cannot_be_set(name):
    """MindSpore's cell would use the new value, which the rule of this cell does not have."""
    cell = DynamicLossScaleUpdateCell(8, 2, 3)
    with pytest.raises(AttributeError, match=name):
        setattr(cell, name, 4)
    assert (cell.scale_factor, cell.scale_window) == (2, 3)


class Differentiated(np.ndarray):
    """Array that requires a gradient, as tensors of torch can."""

    requires_grad = True


@pytest.mark.clause("MINDSPORE-update-cell-call")
@pytest.mark.parametrize(
    ("scale", "overflow", "error", "text"),
    [
        (8.0, True, TypeError, "loss_scale"),
        (array(8, "float16"), True, TypeError, "loss_scale"),
        (np.float32(8), True, TypeError, "mutable"),
        (array([8, 8]), True, ValueError, "loss_scale"),
        (array([[8]]), True, ValueError, "loss_scale"),
        (np.broadcast_to(array(8), ()), True, ValueError, "read-only"),
        (array(8).view(Differentiated), True, ValueError, "requires a gradient"),
        (array(8), np.asarray(1), TypeError, "overflow"),
        (array(8), array_api_strict.asarray(True), TypeError, "overflow from array_api_strict"),
    ],
)
def test_a_call_with_an_invalid_argument_changes_nothing(scale, overflow, error, text):
    """Invalid scales and flags raise an error before the scale or a counter changes."""
    cell = DynamicLossScaleUpdateCell(8, 2, 2)
    cell(array(8), False)
    with rejects(error, text, ""):
        cell(scale, overflow)
    assert (np.ravel(scale)[0], cell.cur_iter, cell.last_overflow_iter) == (8, 2, 0)


def test_every_call_counts_as_an_iteration():
    """Calls of `next_scale`, which returns the scale without writing it, count too. `cur_iter` is the number of the next step."""
    cell = DynamicLossScaleUpdateCell(8, 2, 3)
    for finite in (True, False, True):
        cell.next_scale(array(8), np.asarray(not finite))
    cell(array(8), np.asarray(False))
    assert cell.state_dict()["cur_iter"] == 5
