"""MindSpore on the CPU: `DynamicLossScaler`, the manager, and the update cell, eagerly."""

from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, amp, nn
from subject import Subject, maker, on_copies, read_saved_state, settings, table, with_saved_state

FINITE, OVERFLOW = Tensor(True), Tensor(False)
NAMES = {"growth_factor": "scale_factor", "growth_interval": "scale_window"}


def save_and_restore(parameters: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, Any]:
    """Return functions that save and restore what *parameters* returns for an object."""

    def save(scaler: Any) -> tuple[np.ndarray, ...]:
        return tuple(parameter.asnumpy().copy() for parameter in parameters(scaler))

    def restore(scaler: Any, state: tuple[np.ndarray, ...]) -> None:
        for parameter, value in zip(parameters(scaler), state, strict=True):
            parameter.set_data(Tensor(value, parameter.dtype))

    return save, restore


def step(scaler: Any, finite: bool) -> None:
    scaler.adjust(FINITE if finite else OVERFLOW)


def fresh_cell(**values: Any) -> tuple[nn.Cell, Any]:
    """Return a cell, and a parameter with the cell's scale, since the cell does not store the scale."""
    cell = maker(nn.DynamicLossScaleUpdateCell, init_scale="loss_scale_value", **NAMES)(**values)
    return cell, mindspore.Parameter(Tensor(cell.get_loss_scale(), mindspore.float32))


def cell_parameters(pair: tuple[nn.Cell, Any]) -> tuple[Any, ...]:
    cell, sense = pair
    return sense, cell.cur_iter, cell.last_overflow_iter


def cell_step(pair: tuple[nn.Cell, Any], finite: bool) -> None:
    cell, sense = pair
    cell(sense, OVERFLOW if finite else FINITE)  # the cell's flag is True for an overflow


def read_cell(after: tuple[Any, tuple[np.ndarray, ...]]) -> dict[str, float]:
    scale, now, last = (value.item() for value in after[1])
    return {"scale": scale, "good_steps": now - last - 1}


@on_copies
def manager_step(manager: Any, finite: bool) -> None:
    manager.update_loss_scale(not finite)


def read_manager(manager: amp.DynamicLossScaleManager) -> dict[str, float]:
    finite_steps = manager.cur_iter - manager.last_overflow_iter - 1
    return {"scale": manager.get_loss_scale(), "good_steps": finite_steps % manager.scale_window}


def read_fixed(manager: amp.FixedLossScaleManager) -> dict[str, float]:
    return {"scale": manager.get_loss_scale()}


def static_step(scaler: amp.StaticLossScaler, finite: bool) -> amp.StaticLossScaler:
    step(scaler, finite)
    return scaler


def read_static(scaler: amp.StaticLossScaler) -> dict[str, float]:
    return {"scale": scaler.scale_value.asnumpy().item()}


SCALER = maker(amp.DynamicLossScaler, init_scale="scale_value", **NAMES)
MANAGER = maker(amp.DynamicLossScaleManager, init_scale="init_loss_scale", **NAMES)
FIXED = maker(amp.FixedLossScaleManager, init_scale="loss_scale")
STATIC = maker(amp.StaticLossScaler, init_scale="scale_value")
SCALER_FUNCTIONS = with_saved_state(SCALER, step, *save_and_restore(lambda scaler: (scaler.scale_value, scaler.counter)))
CELL_FUNCTIONS = with_saved_state(fresh_cell, cell_step, *save_and_restore(cell_parameters))
FACTORS = "init_scale growth_factor growth_interval"
ROWS = ((65536.0, 2, 1), (1024.0, 2, 3), (2.0**126, 2, 1), (4.0, 2, 2), (7000.0, 3, 2), (3e38, 3, 1), (7000.1, 1.1, 2))
SETTINGS = settings(*table(FACTORS, *ROWS))
FEW = settings(*table(FACTORS, (1024.0, 2, 3), (7.0, 3, 2), (3e38, 3, 1)))  # a step takes tens of milliseconds
DYNAMIC_MANAGER = ("mindspore_manager", "mindspore", "amp.DynamicLossScaleManager")
STATIC_SETTINGS = settings({"init_scale": 1024.0}, {"init_scale": 1000.5})

SUBJECTS = (
    Subject("mindspore", "mindspore", "amp.DynamicLossScaler", *SCALER_FUNCTIONS, read_saved_state, FEW),
    Subject("mindspore_update_cell", "mindspore", "nn.DynamicLossScaleUpdateCell", *CELL_FUNCTIONS, read_cell, SETTINGS[1:]),
    Subject(*DYNAMIC_MANAGER, MANAGER, manager_step, read_manager, settings({}) + SETTINGS),
    Subject("static", "mindspore", "amp.StaticLossScaler", STATIC, static_step, read_static, STATIC_SETTINGS),
    Subject("static", "mindspore", "amp.FixedLossScaleManager", FIXED, manager_step, read_fixed, STATIC_SETTINGS),
)
