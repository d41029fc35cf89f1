"""OneFlow: the CPU kernel behind `amp.GradScaler`, its file compiled as it is against the few words that it needs."""

import ctypes
from typing import NamedTuple

from oracles.drivers.compiled import step_of
from published import file_of
from subject import Subject, each

KERNEL = file_of("oneflow", "oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cpp")
STEP = step_of("oneflow_step.cpp", KERNEL)


class State(NamedTuple):
    """The kernel's attributes and its two tensors."""

    interval: int
    factor: float
    scale: float
    good_steps: int


def fresh(init_scale: float = 2.0**16, growth_factor: float = 2.0, growth_interval: int = 2000) -> State:
    return State(growth_interval, growth_factor, ctypes.c_float(init_scale).value, 0)


def step(before: State, finite: bool) -> State:
    scale, good = ctypes.c_float(before.scale), ctypes.c_int64(before.good_steps)
    interval, factor = ctypes.c_int64(before.interval), ctypes.c_float(before.factor)
    STEP(ctypes.c_int64(not finite), ctypes.byref(scale), ctypes.byref(good), interval, factor)
    return before._replace(scale=scale.value, good_steps=good.value)


def read(state: State) -> dict[str, float]:
    return {"scale": state.scale, "good_steps": state.good_steps}


SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 65536.0, "growth_interval": 1},
    {"init_scale": 2.0**126, "growth_interval": 1},
    {"init_scale": 4.0, "growth_interval": 2},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 3.0},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 1.1},
    {"init_scale": 3e38, "growth_interval": 1, "growth_factor": 1.1},
)

SUBJECTS = (
    Subject(
        "oneflow",
        "oneflow",
        "kernel dynamic_loss_scale_schedule",
        fresh,
        step,
        read,
        SETTINGS,
        how="its file compiled for the host; the framework around it given",
        unpacked=True,
    ),
)
