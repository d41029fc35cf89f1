"""torch: `amp.GradScaler` and FSDP's `ShardedGradScaler`, both with a real optimizer on the CPU."""

from typing import Any

import torch
from oracles.drivers.on_cpu import group_of_one, scaler_steps
from subject import Subject, each, on_a_copy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

group_of_one()


def read(scaler: Any) -> dict[str, float]:
    return {"scale": scaler.get_scale(), "good_steps": scaler.state_dict()["_growth_tracker"]}


def fresh(**values: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **values)


def fresh_sharded(**values: Any) -> tuple[ShardedGradScaler, dict[str, Any]]:
    scaler = ShardedGradScaler("cpu", **values)
    return scaler, scaler.state_dict()


def sharded_steps(before: tuple[ShardedGradScaler, dict[str, Any]], finite: bool) -> Any:
    """A process group cannot be copied, but the scaler's own state can: one scaler takes all steps."""
    scaler, state = before
    scaler.load_state_dict(state)
    scaler_steps(scaler, finite)
    return scaler, scaler.state_dict()


def read_sharded(after: tuple[ShardedGradScaler, dict[str, Any]]) -> dict[str, float]:
    return {"scale": after[1]["scale"], "good_steps": after[1]["_growth_tracker"]}


SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 65536.0, "growth_interval": 1},
    {"init_scale": 2.0**126, "growth_interval": 1},
    {"init_scale": 3e38, "growth_interval": 2, "growth_factor": 1.1, "backoff_factor": 0.7},
    {"init_scale": 1000.0, "growth_interval": 2, "growth_factor": 1.1, "backoff_factor": 0.7},
    {"init_scale": 2.0**-147, "growth_interval": 2},
)

SUBJECTS = (
    Subject("torch", "torch", "torch.amp.GradScaler", fresh, on_a_copy(scaler_steps), read, SETTINGS),
    Subject(
        "torch_sharded_cpu",
        "torch",
        "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
        fresh_sharded,
        sharded_steps,
        read_sharded,
        SETTINGS,
        how="one process, gloo",
    ),
)
