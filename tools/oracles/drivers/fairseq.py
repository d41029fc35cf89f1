"""`DynamicLossScaler` of fairseq and fairscale, called as in fairseq's trainer: `update` follows a finite norm."""

import math
from collections import defaultdict
from enum import Enum
from typing import Any

import torch
from drivers.on_cpu import OPTIMIZER, give_gradients
from environments.published import extract
from subject import Subject, maker, on_copies, pairs, settings

NAMES = {
    "growth_factor": "scale_factor",
    "growth_interval": "scale_window",
    "overflow_tolerance": "tolerance",
    "min_scale": "threshold",
    "raise_at_or_below": "min_loss_scale",
}
FAIRSEQ = extract("fairseq", "fairseq/optim/dynamic_loss_scaler.py", "DynamicLossScaler")
FAIRSCALE = extract(
    "fairscale",
    "fairscale/experimental/optim/dynamic_loss_scaler.py",
    "DynamicLossScaler",
    "OptState",
    "_refresh_per_optimizer_state",
    torch=torch,
    defaultdict=defaultdict,
    Enum=Enum,
)
fresh_fairseq = maker(FAIRSEQ.DynamicLossScaler, **NAMES)
fresh_fairscale = maker(FAIRSCALE.DynamicLossScaler, **NAMES)


@on_copies
def fairseq_step(scaler: Any, finite: bool) -> None:
    try:
        scaler.check_overflow(1.0 if finite else math.inf)
    except OverflowError:  # signals that the step is skipped
        return
    scaler.update()


@on_copies
def fairscale_step(scaler: Any, finite: bool) -> None:
    give_gradients(finite)
    scaler.step(OPTIMIZER)
    if finite:
        scaler.update()


@on_copies
def fairscale_step_and_update(scaler: Any, finite: bool) -> None:
    give_gradients(finite)
    scaler.step(OPTIMIZER)
    scaler.update()


def read(scaler: Any) -> dict[str, float]:
    finite_steps = scaler._iter - scaler._last_overflow_iter - 1
    return {"scale": scaler.loss_scale, "good_steps": finite_steps % scaler.scale_window}


def read_tolerant(scaler: Any) -> dict[str, float]:
    return {**read(scaler), "bad_steps": scaler._overflows_since_rescale}


SETTINGS = settings(
    *pairs((1024.0, 3), (128.0, 1)),
    {"init_scale": 4.0, "growth_interval": 2, "min_scale": 1.0},
    {"init_scale": 4.0, "growth_interval": 2, "raise_at_or_below": 0.5},
    {"init_scale": 4.0, "growth_interval": 2, "min_scale": 1.0, "raise_at_or_below": 1.0},
    *({"init_scale": 7000.0, "growth_interval": 2, "growth_factor": factor} for factor in (3, 1.1, 49, 1.8)),
    *pairs((2.0**1022, 1)),
)
TOLERANT = settings(
    *(
        {"init_scale": 1024.0, "growth_interval": 3, "overflow_tolerance": tolerance}
        for tolerance in (0.05, 0.25, 1 / 3, 0.5, 0.6, 0.7, 1.0)
    ),
    {"init_scale": 4.0, "growth_interval": 2, "overflow_tolerance": 0.5, "min_scale": 1.0},
    {"init_scale": 4.0, "growth_interval": 2, "overflow_tolerance": 0.4, "raise_at_or_below": 0.5},
    {"init_scale": 7000.0, "growth_interval": 1, "overflow_tolerance": 0.25, "growth_factor": 3},
)
TWICE = settings(
    *pairs((1024.0, 3), (1024.0, 1)),
    reason="called like this, as in fairscale's own test, it counts an overflow as two steps, and grows at it if the window is 1",
)
CUT = "the class alone, extracted from its file"
FINITE = f"{CUT}; update after finite steps only"
EVERY = f"{CUT}; update after every step"
MORE = {"raises": (FloatingPointError,), "unpacked": True}
FAIRSEQS, FAIRSCALES = ("fairseq", "DynamicLossScaler", fresh_fairseq), ("fairscale", "DynamicLossScaler", fresh_fairscale)

SUBJECTS = (
    Subject("fairseq", *FAIRSEQS, fairseq_step, read, SETTINGS, how=CUT, **MORE),
    Subject("fairseq_tolerance", *FAIRSEQS, fairseq_step, read_tolerant, TOLERANT, how=CUT, **MORE),
    Subject("fairscale", *FAIRSCALES, fairscale_step, read, settings({}) + SETTINGS, how=FINITE, **MORE),
    Subject("fairscale", *FAIRSCALES, fairscale_step_and_update, read, TWICE, how=EVERY, **MORE),
)
