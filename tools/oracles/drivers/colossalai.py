"""ColossalAI: `DynamicGradScaler` and `ConstantGradScaler`; its accelerator is the CPU."""

from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

import torch
from environments.published import extract
from subject import HYSTERESIS, ODD, STATIC_SETTINGS, Subject, maker, on_copies, read_attributes, settings, table

FOLDER = "colossalai/amp/naive_amp/grad_scaler"
CPU = SimpleNamespace(device_count=lambda: 1, get_current_device=lambda: torch.device("cpu"))
NAMESPACE = {"torch": torch, "get_accelerator": lambda: CPU, "ABC": ABC, "abstractmethod": abstractmethod}
BASE = extract("colossalai", f"{FOLDER}/base_grad_scaler.py", "BaseGradScaler", **NAMESPACE).BaseGradScaler
DYNAMIC = extract("colossalai", f"{FOLDER}/dynamic_grad_scaler.py", "DynamicGradScaler", BaseGradScaler=BASE, **NAMESPACE)
CONSTANT = extract("colossalai", f"{FOLDER}/constant_grad_scaler.py", "ConstantGradScaler", BaseGradScaler=BASE)
fresh = maker(DYNAMIC.DynamicGradScaler, init_scale="initial_scale")


def fresh_constant(init_scale: float) -> Any:
    return CONSTANT.ConstantGradScaler(init_scale, verbose=False)


@on_copies
def step(scaler: Any, finite: bool) -> None:
    scaler.update(not finite)


def read(scaler: Any) -> dict[str, float]:
    # The scaler's overflow count can exceed the hysteresis; ampscale's count stops at the hysteresis.
    bad = min(scaler._hysteresis_step, scaler._hysteresis)
    return {"scale": scaler.scale.item(), "good_steps": scaler._growth_step, "bad_steps": bad}


ROWS = ((1024.0, 3, 2), (1024.0, 2, 1), (1024.0, 1, 3), (4.0, 2, 2), (2.0**31, 1, 2))
SETTINGS = settings(
    *table(HYSTERESIS, *ROWS, min_scale=1.0, max_scale=2.0**32),
    *table(HYSTERESIS, (1000.0, 2, 2), **ODD, min_scale=600.0, max_scale=1300.0),
)
READ_CONSTANT = read_attributes(scale="scale")
CUT = {"how": "the classes alone, extracted from their files, on the CPU", "unpacked": True}

SUBJECTS = (
    Subject("colossalai", "colossalai", "DynamicGradScaler", fresh, step, read, SETTINGS, **CUT),
    Subject("static", "colossalai", "ConstantGradScaler", fresh_constant, step, READ_CONSTANT, STATIC_SETTINGS, **CUT),
)
