"""Fairseq2: `StandardFloat16LossScaler` with a real optimizer. The driver raises the error of fairseq2's trainer."""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, final, overload

from drivers.on_cpu import LOSS, OPTIMIZER, GradScaler, give_gradients
from environments.published import extract
from subject import Subject, maker, on_copies, pairs, settings, table
from typing_extensions import override

FILE = "fairseq2/optim/fp16_loss_scaler.py"
NAMES = ("Float16LossScaler", "StandardFloat16LossScaler", "Float16LossScaleResult", "_InternalGradScaler")
TYPING = {"ABC": ABC, "abstractmethod": abstractmethod, "dataclass": dataclass, "overload": overload, "override": override}
NAMESPACE = {"GradScaler": GradScaler, "Stateful": object, "final": final, "math": math, "warnings": warnings}
ALONE = SimpleNamespace(root=SimpleNamespace(size=1), rdp=SimpleNamespace(size=1))
SCALER = extract("fairseq2", FILE, *NAMES, **TYPING, **NAMESPACE).StandardFloat16LossScaler
FRESH = maker(SCALER, ALONE, growth_factor="scale_factor", growth_interval="scale_window")


class ExplodedError(Exception):
    """Error that stands for the trainer's `MinimumLossScaleReachedError`."""


@on_copies
def step(scaler: Any, finite: bool) -> None:
    scaler._grad_scaler.scale(LOSS)
    give_gradients(finite)
    if scaler.run_optimizer_step(OPTIMIZER).exploded:
        raise ExplodedError


def read(scaler: Any) -> dict[str, float]:
    state = scaler.state_dict()["grad_scaler"]
    return {"scale": state["scale"], "good_steps": state["_growth_tracker"]}


SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (2.0**126, 1)),
    *table("init_scale growth_interval min_scale", (4.0, 2, 1.0), (7.0, 2, 1.0)),
    {"init_scale": 0.001, "growth_interval": 2},
    *table("init_scale growth_interval growth_factor", (7000.0, 2, 3), (3e38, 2, 1.1)),
) + settings(
    {"init_scale": 1.04e-4, "growth_interval": 2, "growth_factor": 1.05},
    reason="it treats scales within 1e-5 of each other as equal, and then does not check its minimum",
)
HOW = "the classes alone, extracted from their file, on the CPU; an error is raised as in its trainer"
MORE = {"how": HOW, "raises": (ExplodedError,), "unpacked": True}

SUBJECTS = (Subject("fairseq2", "fairseq2", "StandardFloat16LossScaler", FRESH, step, read, SETTINGS, **MORE),)
