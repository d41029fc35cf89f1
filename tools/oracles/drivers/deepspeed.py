"""DeepSpeed: `DynamicLossScaler` of ZeRO, and the two FP16 optimizers with real gradients, on the CPU in one process."""

import copy
import logging
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from drivers.on_cpu import group_of_one
from subject import HYSTERESIS, Subject, on_copies, read_attributes, settings, table, with_saved_state

logging.disable()  # DeepSpeed logs each overflow
group_of_one()
deepspeed.init_distributed("gloo")


def fresh(
    init_scale: float,
    growth_interval: int,
    min_scale: float,
    hysteresis: int,
    raise_at_min_scale: bool = True,
    consecutive: bool = False,
) -> DynamicLossScaler:
    return DynamicLossScaler(init_scale, growth_interval, min_scale, hysteresis, consecutive, raise_at_min_scale)


def fresh_consecutive(**values: Any) -> DynamicLossScaler:
    return fresh(**values, consecutive=True)


def fresh_static(init_scale: float) -> LossScaler:
    return LossScaler(init_scale)


@on_copies
def step(scaler: LossScaler | DynamicLossScaler, finite: bool) -> None:
    scaler.update_scale(not finite)


def read(scaler: DynamicLossScaler) -> dict[str, float]:
    return {"scale": scaler.loss_scale, "good_steps": since_overflow(scaler)}


def since_overflow(scaler: Any) -> int:
    """Return the number of finite steps in the window, without the first one after the start or an overflow."""
    finite_steps = scaler.cur_iter - scaler.last_overflow_iter - 2
    return finite_steps if finite_steps < 0 else finite_steps % scaler.scale_window


def of_optimizer(kind: type) -> tuple[Any, Any]:
    """Return a constructor and a step for an optimizer of one float16 parameter. Its loss scaler is saved and restored."""

    def fresh(init_scale: float, growth_interval: int, min_scale: float) -> Any:
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.half))
        constants = {"init_scale": init_scale, "scale_window": growth_interval, "min_scale": min_scale}
        plain = torch.optim.SGD([parameter], lr=0.0)
        return kind(plain, dynamic_loss_scale=True, dynamic_loss_args=constants, verbose=False), parameter

    def step(pair: tuple[Any, torch.nn.Parameter], finite: bool) -> None:
        optimizer, parameter = pair
        parameter.grad = torch.tensor([0.0, 0.0 if finite else torch.inf], dtype=torch.half)
        optimizer.step()
        assert optimizer.overflow is not finite

    def restore(pair: tuple[Any, torch.nn.Parameter], config: Any) -> None:
        pair[0].loss_scale_config = copy.copy(config)

    return with_saved_state(fresh, step, lambda pair: pair[0].loss_scale_config, restore)


def read_optimizer(after: tuple[Any, Any]) -> dict[str, float]:
    return {"scale": after[1].cur_scale, "good_steps": since_overflow(after[1])}


COUNTED = f"{HYSTERESIS} min_scale"
SETTINGS = settings(
    *table(COUNTED, (1024.0, 3, 2, 1.0), (1024.0, 2, 1, 1.0), (1024.0, 1, 3, 1.0), (4.0, 2, 2, 1.0)),
    *table(COUNTED, (7.0, 3, 1, 1.5), (2.0**126, 1, 2, 1.0)),
    *table(COUNTED, (4.0, 2, 1, 1.0), raise_at_min_scale=False),
) + settings(*table(COUNTED, (2.0**1022, 1, 2, 1.0)), reason="at infinity its log message raises OverflowError")
OPTIMIZER_ROWS = ((1024.0, 3, 1.0), (2.0**32, 1, 1.0), (7.0, 2, 0.25), (2.0**126, 2, 1.0))
OPTIMIZER_SETTINGS = settings(*table("init_scale growth_interval min_scale", *OPTIMIZER_ROWS))
STATIC = settings({"init_scale": 1024.0}) + settings({"init_scale": 1000.1}, reason="its scale is a Python float, not a float32")
ERRORS = (Exception, OverflowError)  # at min_scale, the scaler raises Exception, not a subclass
OPTIMIZER = "deepspeed_fp16_optimizer"
CONSECUTIVE = ("deepspeed_consecutive", "deepspeed", "DynamicLossScaler(consecutive_hysteresis=True)")

SUBJECTS = (
    Subject("deepspeed", "deepspeed", "DynamicLossScaler", fresh, step, read, SETTINGS, raises=ERRORS),
    Subject(*CONSECUTIVE, fresh_consecutive, step, read, SETTINGS, raises=ERRORS),
    Subject(OPTIMIZER, "deepspeed", "FP16_Optimizer", *of_optimizer(FP16_Optimizer), read_optimizer, OPTIMIZER_SETTINGS),
    Subject(
        OPTIMIZER, "deepspeed", "FP16_UnfusedOptimizer", *of_optimizer(FP16_UnfusedOptimizer), read_optimizer, OPTIMIZER_SETTINGS
    ),
    Subject("static", "deepspeed", "LossScaler", fresh_static, step, read_attributes(scale="loss_scale"), STATIC),
)
