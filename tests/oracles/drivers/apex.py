"""Apex: `LossScaler` of amp, `DynamicLossScaler` of fp16_utils, and the hysteresis kernel, compiled for the host."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from oracles.drivers.compiled import cut_out, step_of
from published import cut
from subject import Subject, each, on_a_copy, renamed

APEX = ModuleType("apex")
APEX.deprecated_warning = lambda _: None
sys.modules["apex"] = APEX  # fp16_utils imports its own package as it is made, to warn

AMP = cut(
    "apex",
    "apex/amp/scaler.py",
    "LossScaler",
    "scale_check_overflow_python",
    maybe_print=lambda *_: None,
    multi_tensor_applier=SimpleNamespace(available=False, import_err=None),
    torch=SimpleNamespace(cuda=SimpleNamespace(IntTensor=torch.IntTensor), float32=torch.float32),
)
FP16_UTILS = cut("apex", "apex/fp16_utils/loss_scaler.py", "DynamicLossScaler", "LossScaler")
KERNEL = cut_out("apex", "csrc/update_scale_hysteresis.cu", "__global__", "at::Tensor")
STEP = step_of("apex_step.cpp", KERNEL)
GRADIENTS = {True: torch.zeros(2), False: torch.tensor([0.0, torch.inf])}
CUT = "the class alone, cut from its file"


def fresh_amp(**values: Any) -> Any:
    names = {"growth_interval": "scale_window", "min_scale": "min_loss_scale", "max_scale": "max_loss_scale"}
    return AMP.LossScaler("dynamic", **renamed(values, **names))


def amp_step(scaler: Any, finite: bool) -> None:
    scaler.clear_overflow_state()
    scaler.unscale([GRADIENTS[finite]], [torch.zeros(2)], None)
    assert scaler.update_scale() is not finite


def read_amp(scaler: Any) -> dict[str, float]:
    return {"scale": scaler.loss_scale(), "good_steps": scaler._unskipped}


def fresh_fp16_utils(**values: Any) -> Any:
    return FP16_UTILS.DynamicLossScaler(**renamed(values, growth_factor="scale_factor", growth_interval="scale_window"))


def fp16_utils_step(scaler: Any, finite: bool) -> None:
    overflow = scaler.has_overflow([SimpleNamespace(grad=GRADIENTS[finite])])
    scaler.update_scale(overflow)


def read_fp16_utils(scaler: Any) -> dict[str, float]:
    since = scaler.cur_iter - scaler.last_overflow_iter - 1
    return {"scale": scaler.loss_scale, "good_steps": since % scaler.scale_window}


class State(NamedTuple):
    """The kernel's constants and its three tensors."""

    factors: tuple[float, float]
    interval: int
    hysteresis: int
    scale: float
    good_steps: int
    patience: int


def fresh_kernel(
    init_scale: float = 2.0**16,
    growth_interval: int = 2000,
    hysteresis: int = 1,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
) -> State:
    first = ctypes.c_float(init_scale).value
    return State((growth_factor, backoff_factor), growth_interval, hysteresis, first, 0, hysteresis)


def kernel_step(before: State, finite: bool) -> State:
    scale, good = ctypes.c_float(before.scale), ctypes.c_int(before.good_steps)
    patience, overflow = ctypes.c_int(before.patience), ctypes.c_float(not finite)
    factors = [ctypes.c_double(factor) for factor in before.factors]
    state = [ctypes.byref(one) for one in (scale, good, patience)]
    STEP(*state, overflow, *factors, before.interval, before.hysteresis)
    return before._replace(scale=scale.value, good_steps=good.value, patience=patience.value)


def read_kernel(state: State) -> dict[str, float]:
    # It counts down from its hysteresis, and goes on below zero; the machine's count stops at hysteresis.
    bad = min(state.hysteresis - state.patience, state.hysteresis)
    return {"scale": state.scale, "good_steps": state.good_steps, "bad_steps": bad}


HYSTERESIS_SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3, "hysteresis": 2},
    {"init_scale": 1024.0, "growth_interval": 2, "hysteresis": 1},
    {"init_scale": 1024.0, "growth_interval": 1, "hysteresis": 3},
    {"init_scale": 2.0**126, "growth_interval": 1, "hysteresis": 2},
    {"init_scale": 1000.0, "growth_interval": 2, "hysteresis": 2, "growth_factor": 1.1, "backoff_factor": 0.7},
    {"init_scale": 3e38, "growth_interval": 2, "hysteresis": 1, "growth_factor": 1.1, "backoff_factor": 0.7},
    {"init_scale": 2.0**-147, "growth_interval": 2, "hysteresis": 1},
)
AMP_SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 65536.0, "growth_interval": 1},
    {"init_scale": 2.0**23, "growth_interval": 2},
    {"init_scale": 2.0**-1060, "growth_interval": 2},
    {"init_scale": 1000.1, "growth_interval": 1, "min_scale": 300.0, "max_scale": 3000.0},
) + each(
    {"init_scale": 2.0**-1072, "growth_interval": 2},
    reason="once its scale is zero it cannot unscale, and raises ZeroDivisionError",
)
FP16_UTILS_SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 4.0, "growth_interval": 2},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 3.0},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 49.0},
    {"init_scale": 2.0**1022, "growth_interval": 1},
)

SUBJECTS = (
    Subject(
        "apex",
        "apex",
        "amp LossScaler",
        fresh_amp,
        on_a_copy(amp_step),
        read_amp,
        AMP_SETTINGS,
        how=CUT,
        stops=(ZeroDivisionError,),
        unpacked=True,
    ),
    Subject(
        "apex_fp16_utils",
        "apex",
        "fp16_utils DynamicLossScaler",
        fresh_fp16_utils,
        on_a_copy(fp16_utils_step),
        read_fp16_utils,
        FP16_UTILS_SETTINGS,
        how=CUT,
        unpacked=True,
    ),
    Subject(
        "apex_hysteresis",
        "apex",
        "kernel update_scale_hysteresis",
        fresh_kernel,
        kernel_step,
        read_kernel,
        HYSTERESIS_SETTINGS,
        how="the kernel cut from its file and compiled for the host",
        unpacked=True,
    ),
)
