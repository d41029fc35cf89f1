"""Loss scale managers, which store the scale as a Python number."""

import copy

import numpy as np
import pytest
from frameworks.networks import array
from frameworks.published import SETTINGS, every_pattern, states_of
from frameworks.rejections import check_rejected
from presets import loops_mindspore

from ampscale.frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaleUpdateCell,
    FixedLossScaleManager,
    FixedLossScaleUpdateCell,
)


def scales_of(manager, pattern):
    """Return the scale after each step."""
    scales = []
    for step in pattern:
        assert manager.update_loss_scale(step == "O") is None
        scales.append(manager.get_loss_scale())
    return scales


@pytest.mark.clause("MINDSPORE-manager-dynamic", "MINDSPORE-manager-skip-infinite-growth")
@pytest.mark.parametrize(("start", "factor", "window"), [*SETTINGS, (8, 1.5, 2), (1.5e308, 3, 1)])
def test_the_manager_equals_the_plain_loop_on_every_pattern(start, factor, window):
    """The scales are equal bit for bit, in float64."""
    runs = every_pattern(
        DynamicLossScaleManager(start, factor, window),
        lambda manager, step: manager.update_loss_scale(step == "O"),
        DynamicLossScaleManager.get_loss_scale,
    )
    for pattern, scales in runs:
        loop = loops_mindspore.DynamicLossScaleManager(start, factor, window)
        assert scales == [scale for (scale,) in states_of(loop, pattern, "loss_scale")], pattern
        assert {type(scale) for scale in scales} == {float}


@pytest.mark.clause("MINDSPORE-manager-limit")
def test_the_1001st_consecutive_overflow_raises():
    """The scale is updated first. Each further overflow raises too; a finite step resets the count."""
    manager = DynamicLossScaleManager(2.0**1001, 2, 3)
    scales_of(manager, "OF" + "O" * 1000)
    assert manager.get_loss_scale() == 1
    manager = DynamicLossScaleManager(2.0**1001, 2, 2)
    scales_of(manager, "O" * 1000)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="1000"):
            manager.update_loss_scale(True)
        assert manager.get_loss_scale() == 1


@pytest.mark.clause("MINDSPORE-manager-update-cell")
def test_the_update_cell_of_a_manager_starts_from_its_current_scale():
    """Each call creates an independent cell with the manager's factor and window. The manager skips steps with an overflow."""
    manager = DynamicLossScaleManager(8, 4, 2)
    scales_of(manager, "FF")
    cell = manager.get_update_cell()
    assert type(cell) is DynamicLossScaleUpdateCell
    assert cell is not manager.get_update_cell()
    assert (cell.get_loss_scale(), cell.scale_factor, cell.scale_window) == (32, 4, 2)
    scales_of(manager, "O")
    scale = array(cell.get_loss_scale())
    cell(scale, False)
    cell(scale, False)
    assert (scale, manager.get_loss_scale(), manager.get_drop_overflow_update()) == (128, 8, True)


@pytest.mark.clause("MINDSPORE-manager-fixed")
@pytest.mark.parametrize("drop", [True, False])
def test_a_fixed_manager_keeps_its_scale(drop):
    """The update cell is a fixed one, or None if overflows are not dropped."""
    manager = FixedLossScaleManager(64, drop)
    for overflow in (True, False, np.asarray(True)):
        assert manager.update_loss_scale(overflow) is None
        assert manager.get_loss_scale() == 64
    assert manager.get_drop_overflow_update() is drop
    cell = manager.get_update_cell()
    assert type(cell) is (FixedLossScaleUpdateCell if drop else type(None))
    assert cell is None or cell.get_loss_scale() == 64


def test_a_manager_rejects_an_overflow_that_is_not_a_single_bool():
    """The scale and the count of overflows are unchanged."""
    manager = DynamicLossScaleManager(8, 2, 2)
    attributes = copy.deepcopy(vars(manager))
    wrong = [("overflow", flag, (TypeError, ValueError)) for flag in (1, None, np.asarray(0), np.asarray([True]))]
    check_rejected(lambda _, flag: manager.update_loss_scale(flag), wrong, got=None)
    assert vars(manager) == attributes
