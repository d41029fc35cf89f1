"""Loss scale managers, which store the scale as a Python number."""

import copy

import numpy as np
import pytest
from frameworks.networks import array
from frameworks.published import SETTINGS, dynamic_manager, every_pattern
from frameworks.rejections import check_rejected

from ampscale.frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaleUpdateCell,
    FixedLossScaleManager,
    FixedLossScaleUpdateCell,
)

INF, NAN = float("inf"), float("nan")


def scales_of(manager, pattern):
    """Return the scale after each step."""
    scales = []
    for step in pattern:
        assert manager.update_loss_scale(step == "O") is None
        scales.append(manager.get_loss_scale())
    return scales


@pytest.mark.clause("MINDSPORE-manager-defaults")
def test_managers_have_the_published_defaults():
    """Both managers skip steps with an overflow by default."""
    for manager, scale in ((DynamicLossScaleManager(), 2**24), (FixedLossScaleManager(), 128)):
        assert (manager.get_loss_scale(), manager.get_drop_overflow_update()) == (scale, True)


@pytest.mark.clause("MINDSPORE-manager-dynamic", "MINDSPORE-manager-skip-infinite-growth")
@pytest.mark.parametrize(("start", "factor", "window"), [*SETTINGS, (8, 1.5, 2), (1.5e308, 3, 1)])
def test_the_manager_equals_the_plain_loop_on_every_pattern(start, factor, window):
    """The scales are equal bit for bit, in float64."""
    walk = every_pattern(
        DynamicLossScaleManager(start, factor, window),
        lambda manager, step: manager.update_loss_scale(step == "O"),
        DynamicLossScaleManager.get_loss_scale,
    )
    for pattern, scales in walk:
        assert scales == dynamic_manager(start, factor, window, pattern), pattern
        assert {type(scale) for scale in scales} == {float}


@pytest.mark.clause("MINDSPORE-manager-limit")
def test_the_1001st_consecutive_overflow_raises():
    """The scale is updated first. Each further overflow raises too; a finite step resets the count."""
    manager = DynamicLossScaleManager(2.0**1001, 2, 3)
    scales_of(manager, "OF" + "O" * 1000)
    assert manager.get_loss_scale() == 1
    manager = DynamicLossScaleManager(2.0**1001, 2, 2)
    scales_of(manager, "O" * 1000)
    for scale in (1, 1):
        with pytest.raises(RuntimeError, match="1000"):
            manager.update_loss_scale(True)
        assert manager.get_loss_scale() == scale


@pytest.mark.clause("MINDSPORE-manager-update-cell")
def test_the_update_cell_of_a_manager_starts_from_its_current_scale():
    """Each call creates an independent cell with the manager's factor and window."""
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
    assert (scale, manager.get_loss_scale()) == (128, 8)


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


@pytest.mark.clause("MINDSPORE-manager-checked")
def test_managers_validate_their_arguments():
    """A scale is at least 1 and finite in float64, or in float32 if it is fixed; a factor is at least 1."""
    wrong = [
        *[("init_loss_scale", value, ValueError) for value in (0.5, 0, -8, NAN, INF, 10**400)],
        *[("init_loss_scale", value, TypeError) for value in (True, "8", None, [8], np.float32(8), array(8))],
        *[("scale_factor", value, ValueError) for value in (0, -2, 0.5, NAN, INF)],
        *[("scale_factor", value, TypeError) for value in (True, "2", None, np.float32(2))],
        *[("scale_window", value, ValueError) for value in (0, -1, 2**31)],
        *[("scale_window", value, TypeError) for value in (True, 2.0, "2", None, np.int32(2))],
    ]
    check_rejected(lambda name, value: DynamicLossScaleManager(**{name: value}), wrong)
    for name in ("init_loss_scale", "scale_factor", "scale_window"):
        assert DynamicLossScaleManager(**{name: 1}).get_loss_scale() in (1, 2**24)
    wrong = [
        *[("loss_scale", value, ValueError) for value in (0.5, 0, -8, NAN, INF, 1e39, 10**400)],
        *[("loss_scale", value, TypeError) for value in (True, "8", None, np.float32(8), array(8))],
        *[("drop_overflow_update", value, TypeError) for value in (1, None, "True")],
    ]
    check_rejected(lambda name, value: FixedLossScaleManager(**{name: value}), wrong)


def test_a_manager_rejects_an_overflow_that_is_not_a_single_bool():
    """The scale and the count of overflows are unchanged."""
    manager = DynamicLossScaleManager(8, 2, 2)
    before = copy.deepcopy(vars(manager))
    wrong = [("overflow", flag, (TypeError, ValueError)) for flag in (1, None, np.asarray(0), np.asarray([True]))]
    check_rejected(lambda _, flag: manager.update_loss_scale(flag), wrong, got=lambda _: "")
    assert vars(manager) == before
