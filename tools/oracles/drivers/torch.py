"""Torch: `amp.GradScaler` and FSDP's `ShardedGradScaler`, both with a real optimizer on the CPU."""

from typing import Any

import torch
from drivers.on_cpu import group_of_one, scaler_steps
from subject import ODD, Subject, maker, pairs, settings, table, with_saved_state
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

group_of_one()


def of_kind(kind: type) -> tuple[Any, Any]:
    """Return a constructor and a step that saves and restores the scaler's state, since a process group cannot be copied."""
    return with_saved_state(maker(kind, "cpu"), scaler_steps, kind.state_dict, kind.load_state_dict)


def read(after: tuple[Any, dict[str, Any]]) -> dict[str, float]:
    return {"scale": after[1]["scale"], "good_steps": after[1]["_growth_tracker"]}


SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (65536.0, 1), (2.0**126, 1)),
    *table("init_scale growth_interval", (3e38, 2), (1000.0, 2), **ODD),
    *pairs((2.0**-147, 2)),
)
SHARDED = "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler"

SUBJECTS = (
    Subject("torch", "torch", "torch.amp.GradScaler", *of_kind(torch.amp.GradScaler), read, SETTINGS),
    Subject("torch_sharded_cpu", "torch", SHARDED, *of_kind(ShardedGradScaler), read, SETTINGS, how="one process, gloo"),
)
