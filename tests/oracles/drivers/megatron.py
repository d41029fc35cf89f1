"""Megatron-core: `DynamicGradScaler` and `ConstantGradScaler`, their tensors put on the CPU."""

from typing import Any
from unittest import mock

import torch
from megatron.core.optimizer.grad_scaler import ConstantGradScaler, DynamicGradScaler
from subject import ODD, STATIC_SETTINGS, Fresh, Subject, each, maker, on_a_copy, shown

HOW = "tensors that it makes on `cuda` are made on the CPU"
tensor = torch.tensor


def on_cpu(data: Any, **options: Any) -> torch.Tensor:
    return tensor(data, **options | {"device": "cpu"})


def made_on_cpu(kind: type) -> Fresh:
    return mock.patch.object(torch, "tensor", on_cpu)(maker(kind, init_scale="initial_scale"))


@on_a_copy
def step(scaler: Any, finite: bool) -> None:
    scaler.update(not finite)


def read(scaler: DynamicGradScaler) -> dict[str, float]:
    # It counts down from its hysteresis, and goes on below zero; the machine's count stops at hysteresis.
    bad = min(scaler.hysteresis - scaler._hysteresis_tracker, scaler.hysteresis)
    return {"scale": scaler.scale.item(), "good_steps": scaler._growth_tracker, "bad_steps": bad}


ALL = {"growth_factor": 2.0, "backoff_factor": 0.5, "min_scale": 1.0}
SETTINGS = each(
    {**ALL, "init_scale": 1024.0, "growth_interval": 3, "hysteresis": 2},
    {**ALL, "init_scale": 1024.0, "growth_interval": 2, "hysteresis": 1},
    {**ALL, "init_scale": 1024.0, "growth_interval": 2, "hysteresis": 3},
    {**ALL, "init_scale": 4.0, "growth_interval": 1, "hysteresis": 2},
    {**ALL, "init_scale": 2.0**126, "growth_interval": 1, "hysteresis": 2},
    {**ODD, "init_scale": 1000.0, "growth_interval": 2, "hysteresis": 2, "min_scale": 900.0},
    {**ODD, "init_scale": 3e38, "growth_interval": 2, "hysteresis": 1, "min_scale": 0.3},
)
DYNAMIC, CONSTANT = made_on_cpu(DynamicGradScaler), made_on_cpu(ConstantGradScaler)
READ_CONSTANT = shown(scale="scale")

SUBJECTS = (
    Subject("megatron", "megatron-core", "DynamicGradScaler", DYNAMIC, step, read, SETTINGS, how=HOW),
    Subject("static", "megatron-core", "ConstantGradScaler", CONSTANT, step, READ_CONSTANT, STATIC_SETTINGS, how=HOW),
)
