"""DeepSpeed: `DynamicLossScaler` of ZeRO, and both FP16 optimizers with real gradients, on the CPU in one process."""

import copy
import logging
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from oracles.drivers.on_cpu import group_of_one
from subject import Subject, each, on_a_copy

logging.disable()
group_of_one()
deepspeed.init_distributed("gloo")

FINITE = torch.zeros(2, dtype=torch.half)
INFINITE = torch.tensor([0.0, torch.inf], dtype=torch.half)


def fresh(
    init_scale: float,
    growth_interval: int,
    min_scale: float,
    hysteresis: int,
    stop_at_floor: bool = True,
    consecutive: bool = False,
) -> DynamicLossScaler:
    return DynamicLossScaler(init_scale, growth_interval, min_scale, hysteresis, consecutive, stop_at_floor)


def fresh_consecutive(**values: Any) -> DynamicLossScaler:
    return fresh(**values, consecutive=True)


def step(scaler: LossScaler | DynamicLossScaler, finite: bool) -> None:
    scaler.update_scale(not finite)


def read(scaler: DynamicLossScaler) -> dict[str, float]:
    return {"scale": scaler.loss_scale, "good_steps": since_overflow(scaler)}


def read_static(scaler: LossScaler) -> dict[str, float]:
    return {"scale": scaler.loss_scale}


def since_overflow(scaler: Any) -> int:
    """Finite steps in the window: the first step of a window is not one of them."""
    since = scaler.cur_iter - scaler.last_overflow_iter - 2
    return since if since < 0 else since % scaler.scale_window


def fresh_optimizer(kind: type) -> Any:
    """A maker of a real optimizer around one float16 parameter, and of the constants that its state begins with."""

    def fresh(init_scale: float, growth_interval: int, min_scale: float) -> tuple[Any, torch.nn.Parameter, Any]:
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.half))
        constants = {"init_scale": init_scale, "scale_window": growth_interval, "min_scale": min_scale}
        plain = torch.optim.SGD([parameter], lr=0.0)
        optimizer = kind(plain, dynamic_loss_scale=True, dynamic_loss_args=constants, verbose=False)
        return optimizer, parameter, optimizer.loss_scale_config

    return fresh


def optimizer_steps(before: tuple[Any, torch.nn.Parameter, Any], finite: bool) -> Any:
    """One optimizer takes all steps; what it scales by is a small object of its own, which is copied."""
    optimizer, parameter, config = before
    optimizer.loss_scale_config = copy.copy(config)
    parameter.grad = (FINITE if finite else INFINITE).clone()
    optimizer.step()
    assert optimizer.overflow is not finite
    return optimizer, parameter, optimizer.loss_scale_config


def read_optimizer(after: tuple[Any, torch.nn.Parameter, Any]) -> dict[str, float]:
    return {"scale": after[2].cur_scale, "good_steps": since_overflow(after[2])}


SETTINGS = each(
    {"init_scale": 1024.0, "growth_interval": 3, "hysteresis": 2, "min_scale": 1.0},
    {"init_scale": 1024.0, "growth_interval": 2, "hysteresis": 1, "min_scale": 1.0},
    {"init_scale": 1024.0, "growth_interval": 1, "hysteresis": 3, "min_scale": 1.0},
    {"init_scale": 4.0, "growth_interval": 2, "hysteresis": 2, "min_scale": 1.0},
    {"init_scale": 7.0, "growth_interval": 3, "hysteresis": 1, "min_scale": 1.5},
    {"init_scale": 2.0**126, "growth_interval": 1, "hysteresis": 2, "min_scale": 1.0},
    {"init_scale": 4.0, "growth_interval": 2, "hysteresis": 1, "min_scale": 1.0, "stop_at_floor": False},
) + each(
    {"init_scale": 2.0**1022, "growth_interval": 1, "hysteresis": 2, "min_scale": 1.0},
    reason="at infinity the line that it logs raises OverflowError",
)
OPTIMIZER_SETTINGS = each(
    {"init_scale": 1024.0, "growth_interval": 3, "min_scale": 1.0},
    {"init_scale": 2.0**32, "growth_interval": 1, "min_scale": 1.0},
    {"init_scale": 7.0, "growth_interval": 2, "min_scale": 0.25},
    {"init_scale": 2.0**126, "growth_interval": 2, "min_scale": 1.0},
)
STOPS = (Exception, OverflowError)  # at its floor it raises the bare class

SUBJECTS = (
    Subject("deepspeed", "deepspeed", "DynamicLossScaler", fresh, on_a_copy(step), read, SETTINGS, stops=STOPS),
    Subject(
        "deepspeed_consecutive",
        "deepspeed",
        "DynamicLossScaler(consecutive_hysteresis=True)",
        fresh_consecutive,
        on_a_copy(step),
        read,
        SETTINGS,
        stops=STOPS,
    ),
    *(
        Subject(
            "deepspeed_fp16_optimizer",
            "deepspeed",
            kind.__name__,
            fresh_optimizer(kind),
            optimizer_steps,
            read_optimizer,
            OPTIMIZER_SETTINGS,
        )
        for kind in (FP16_Optimizer, FP16_UnfusedOptimizer)
    ),
    Subject(
        "static",
        "deepspeed",
        "LossScaler",
        lambda init_scale: LossScaler(init_scale),
        on_a_copy(step),
        read_static,
        each({"init_scale": 1024.0}) + each({"init_scale": 1000.1}, reason="its scale is a Python float, not a float32"),
    ),
)
