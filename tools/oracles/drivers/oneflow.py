"""OneFlow: the CPU kernel behind `amp.GradScaler`, compiled unchanged with minimal replacements for the framework's headers."""

from ctypes import byref, c_float, c_int64
from types import SimpleNamespace

from drivers.compiled import step_of
from environments.published import file_of
from subject import Subject, on_copies, pairs, settings, table

STEP = step_of("oneflow_step.cpp", file_of("oneflow", "oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cpp"))


def fresh(init_scale: float = 2.0**16, growth_factor: float = 2.0, growth_interval: int = 2000) -> SimpleNamespace:
    """Return the kernel's two tensors and its attributes."""
    constants = (c_int64(growth_interval), c_float(growth_factor))
    return SimpleNamespace(scale=c_float(init_scale), good=c_int64(0), constants=constants)


@on_copies
def step(state: SimpleNamespace, finite: bool) -> None:
    STEP(c_int64(not finite), byref(state.scale), byref(state.good), *state.constants)


def read(state: SimpleNamespace) -> dict[str, float]:
    return {"scale": state.scale.value, "good_steps": state.good.value}


SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (65536.0, 1), (2.0**126, 1), (4.0, 2)),
    *table("init_scale growth_interval growth_factor", (7000.0, 2, 3.0), (7000.0, 2, 1.1), (3e38, 1, 1.1)),
)
HOW = "its file compiled for the host; the framework around it replaced"
NAME = "kernel dynamic_loss_scale_schedule"

SUBJECTS = (Subject("oneflow", "oneflow", NAME, fresh, step, read, SETTINGS, how=HOW, unpacked=True),)
