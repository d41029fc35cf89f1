"""Apex: `LossScaler` of amp, `DynamicLossScaler` of fp16_utils, and the hysteresis kernel, compiled for the host."""

import sys
import tempfile
from ctypes import byref, c_double, c_float, c_int
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from drivers.compiled import step_of
from environments.published import extract, file_of
from subject import HYSTERESIS, ODD, Subject, maker, on_copies, pairs, settings, table

APEX = ModuleType("apex")
APEX.deprecated_warning = lambda _: None
sys.modules["apex"] = APEX  # the constructors in fp16_utils import apex for a warning

AMP = extract(
    "apex",
    "apex/amp/scaler.py",
    "LossScaler",
    "scale_check_overflow_python",
    maybe_print=lambda *_: None,
    multi_tensor_applier=SimpleNamespace(available=False, import_err=None),
    torch=SimpleNamespace(cuda=SimpleNamespace(IntTensor=torch.IntTensor), float32=torch.float32),
)
FP16_UTILS = extract("apex", "apex/fp16_utils/loss_scaler.py", "DynamicLossScaler", "LossScaler")
GRADIENTS = {True: torch.zeros(2), False: torch.tensor([0.0, torch.inf])}


def kernel() -> Path:
    """Write the kernel, without the function that launches it, into a file of its own, and return the path."""
    text = file_of("apex", "csrc/update_scale_hysteresis.cu").read_text(encoding="utf-8")
    part = Path(tempfile.mkdtemp()) / "kernel.h"
    part.write_text(text[text.index("__global__") : text.index("at::Tensor", text.index("__global__"))], encoding="utf-8")
    return part


STEP = step_of("apex_step.cpp", kernel())
AMP_NAMES = {"growth_interval": "scale_window", "min_scale": "min_loss_scale", "max_scale": "max_loss_scale"}
fresh_amp = maker(AMP.LossScaler, "dynamic", **AMP_NAMES)
fresh_utils = maker(FP16_UTILS.DynamicLossScaler, growth_factor="scale_factor", growth_interval="scale_window")


@on_copies
def amp_step(scaler: Any, finite: bool) -> None:
    scaler.clear_overflow_state()
    scaler.unscale([GRADIENTS[finite]], [torch.zeros(2)], None)
    assert scaler.update_scale() is not finite


def read_amp(scaler: Any) -> dict[str, float]:
    return {"scale": scaler.loss_scale(), "good_steps": scaler._unskipped}


@on_copies
def utils_step(scaler: Any, finite: bool) -> None:
    overflow = scaler.has_overflow([SimpleNamespace(grad=GRADIENTS[finite])])
    scaler.update_scale(overflow)


def read_utils(scaler: Any) -> dict[str, float]:
    finite_steps = scaler.cur_iter - scaler.last_overflow_iter - 1
    return {"scale": scaler.loss_scale, "good_steps": finite_steps % scaler.scale_window}


def fresh_kernel(
    init_scale: float = 2.0**16,
    growth_interval: int = 2000,
    hysteresis: int = 1,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
) -> SimpleNamespace:
    """Return the kernel's three tensors and its constants."""
    constants = (c_double(growth_factor), c_double(backoff_factor), growth_interval, hysteresis)
    return SimpleNamespace(scale=c_float(init_scale), good=c_int(0), tracker=c_int(hysteresis), constants=constants)


@on_copies
def kernel_step(state: SimpleNamespace, finite: bool) -> None:
    STEP(byref(state.scale), byref(state.good), byref(state.tracker), c_float(not finite), *state.constants)


def read_kernel(state: SimpleNamespace) -> dict[str, float]:
    # The tracker counts down from the hysteresis, also below zero; ampscale's count stops at the hysteresis.
    hysteresis = state.constants[-1]
    bad = min(hysteresis - state.tracker.value, hysteresis)
    return {"scale": state.scale.value, "good_steps": state.good.value, "bad_steps": bad}


HYSTERESIS_SETTINGS = settings(
    {},
    *table(HYSTERESIS, (1024.0, 3, 2), (1024.0, 2, 1), (1024.0, 1, 3), (2.0**126, 1, 2)),
    *table(HYSTERESIS, (1000.0, 2, 2), (3e38, 2, 1), **ODD),
    *table(HYSTERESIS, (2.0**-147, 2, 1)),
)
AMP_SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (65536.0, 1), (2.0**23, 2), (2.0**-1060, 2)),
    {"init_scale": 1000.1, "growth_interval": 1, "min_scale": 300.0, "max_scale": 3000.0},
) + settings(*pairs((2.0**-1072, 2)), reason="once its scale is zero, unscaling raises ZeroDivisionError")
UTILS_SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (4.0, 2)),
    *table("init_scale growth_interval growth_factor", (7000.0, 2, 3.0), (7000.0, 2, 49.0)),
    *pairs((2.0**1022, 1)),
)
CUT = {"how": "the class alone, extracted from its file", "unpacked": True}
COMPILED = {"how": "the kernel extracted from its file and compiled for the host", "unpacked": True}
ERRORS = (ZeroDivisionError,)
KERNEL = "kernel update_scale_hysteresis"

SUBJECTS = (
    Subject("apex", "apex", "amp LossScaler", fresh_amp, amp_step, read_amp, AMP_SETTINGS, raises=ERRORS, **CUT),
    Subject(
        "apex_fp16_utils", "apex", "fp16_utils DynamicLossScaler", fresh_utils, utils_step, read_utils, UTILS_SETTINGS, **CUT
    ),
    Subject("apex_hysteresis", "apex", KERNEL, fresh_kernel, kernel_step, read_kernel, HYSTERESIS_SETTINGS, **COMPILED),
)
