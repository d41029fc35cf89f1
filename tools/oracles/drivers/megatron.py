"""Megatron-core: `DynamicGradScaler` and `ConstantGradScaler`, with tensors on the CPU."""

from typing import Any
from unittest import mock

import torch
from megatron.core.optimizer.grad_scaler import ConstantGradScaler, DynamicGradScaler
from subject import HYSTERESIS, ODD, STATIC_SETTINGS, Fresh, Subject, maker, on_copies, read_attributes, settings, table

HOW = "tensors that it creates on `cuda` are created on the CPU"
tensor = torch.tensor


def on_cpu(data: Any, **options: Any) -> torch.Tensor:
    return tensor(data, **options | {"device": "cpu"})


def made_on_cpu(kind: type) -> Fresh:
    return mock.patch.object(torch, "tensor", on_cpu)(maker(kind, init_scale="initial_scale"))


@on_copies
def step(scaler: Any, finite: bool) -> None:
    scaler.update(not finite)


def read(scaler: DynamicGradScaler) -> dict[str, float]:
    # The tracker counts down from the hysteresis, also below zero; ampscale's count stops at the hysteresis.
    bad = min(scaler.hysteresis - scaler._hysteresis_tracker, scaler.hysteresis)
    return {"scale": scaler.scale.item(), "good_steps": scaler._growth_tracker, "bad_steps": bad}


ROWS = ((1024.0, 3, 2), (1024.0, 2, 1), (1024.0, 2, 3), (4.0, 1, 2), (2.0**126, 1, 2))
SETTINGS = settings(
    *table(HYSTERESIS, *ROWS, growth_factor=2.0, backoff_factor=0.5, min_scale=1.0),
    *table(f"{HYSTERESIS} min_scale", (1000.0, 2, 2, 900.0), (3e38, 2, 1, 0.3), **ODD),
)
DYNAMIC, CONSTANT = made_on_cpu(DynamicGradScaler), made_on_cpu(ConstantGradScaler)
READ_CONSTANT = read_attributes(scale="scale")

SUBJECTS = (
    Subject("megatron", "megatron-core", "DynamicGradScaler", DYNAMIC, step, read, SETTINGS, how=HOW),
    Subject("static", "megatron-core", "ConstantGradScaler", CONSTANT, step, READ_CONSTANT, STATIC_SETTINGS, how=HOW),
)
