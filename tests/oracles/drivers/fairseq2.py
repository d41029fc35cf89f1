"""fairseq2: `StandardFloat16LossScaler` with a real optimizer; its trainer raises when the scaler says that it exploded."""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, final, overload

from oracles.drivers.on_cpu import LOSS, OPTIMIZER, GradScaler, give_gradients
from published import cut
from subject import Subject, each, on_a_copy, renamed
from typing_extensions import override

NAMES = ("Float16LossScaler", "StandardFloat16LossScaler", "Float16LossScaleResult", "_InternalGradScaler")
FAIRSEQ2 = cut(
    "fairseq2",
    "fairseq2/optim/fp16_loss_scaler.py",
    *NAMES,
    ABC=ABC,
    GradScaler=GradScaler,
    Stateful=object,
    abstractmethod=abstractmethod,
    dataclass=dataclass,
    final=final,
    math=math,
    overload=overload,
    override=override,
    warnings=warnings,
)
ALONE = SimpleNamespace(root=SimpleNamespace(size=1), rdp=SimpleNamespace(size=1))


class ExplodedError(Exception):
    """Where its trainer raises `MinimumLossScaleReachedError`."""


def fresh(**values: Any) -> Any:
    named = renamed(values, growth_factor="scale_factor", growth_interval="scale_window")
    return FAIRSEQ2.StandardFloat16LossScaler(ALONE, **named)


def step(scaler: Any, finite: bool) -> None:
    scaler._grad_scaler.scale(LOSS)
    give_gradients(finite)
    if scaler.run_optimizer_step(OPTIMIZER).exploded:
        raise ExplodedError


def read(scaler: Any) -> dict[str, float]:
    shown = scaler.state_dict()["grad_scaler"]
    return {"scale": shown["scale"], "good_steps": shown["_growth_tracker"]}


SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 2.0**126, "growth_interval": 1},
    {"init_scale": 4.0, "growth_interval": 2, "min_scale": 1.0},
    {"init_scale": 7.0, "growth_interval": 2, "min_scale": 1.0},
    {"init_scale": 0.001, "growth_interval": 2},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 3},
    {"init_scale": 3e38, "growth_interval": 2, "growth_factor": 1.1},
) + each(
    {"init_scale": 1.04e-4, "growth_interval": 2, "growth_factor": 1.05},
    reason="it takes scales within 1e-5 of one another for the same, and then does not look at its floor",
)

SUBJECTS = (
    Subject(
        "fairseq2",
        "fairseq2",
        "StandardFloat16LossScaler",
        fresh,
        on_a_copy(step),
        read,
        SETTINGS,
        how="the classes alone, cut from their file, on the CPU; stopped where its trainer raises",
        stops=(ExplodedError,),
        unpacked=True,
    ),
)
