"""NeMo: the two `GradScaler` classes, without Apex, with a real optimizer and Megatron's process groups, on the CPU."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from drivers.on_cpu import GradScaler, group_of_one, scaler_steps
from environments.published import extract
from megatron.core import parallel_state
from subject import HYSTERESIS, ODD, Subject, settings, table

group_of_one()
parallel_state.initialize_model_parallel()

REFRESH = torch.amp.grad_scaler._refresh_per_optimizer_state


class OnCPU:
    """Replacement for torch, whose `cuda.amp.GradScaler` is replaced by the `GradScaler` of on_cpu.py."""

    amp = SimpleNamespace(GradScaler=GradScaler, grad_scaler=SimpleNamespace(_refresh_per_optimizer_state=REFRESH))
    cuda = SimpleNamespace(amp=amp, FloatTensor=torch.FloatTensor)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


NAMESPACE = {
    "torch": OnCPU(),
    "parallel_state": parallel_state,
    "HAVE_AMP_C": False,
    "defaultdict": defaultdict,
    "_refresh_per_optimizer_state": REFRESH,
}


def step(before: Any, finite: bool) -> Any:
    """Run a step on a copy with all counts, and return the copy. The scaler's own copying would reset the overflow count."""
    scaler = object.__new__(type(before))
    scaler.__dict__.update(before.__dict__)
    if before._scale is not None:
        scaler._scale, scaler._growth_tracker = before._scale.clone(), before._growth_tracker.clone()
    scaler._per_optimizer_states = before._per_optimizer_states.copy()
    scaler_steps(scaler, finite)
    return scaler


def read(scaler: Any) -> dict[str, float]:
    state = scaler.state_dict()
    # The tracker counts down from the hysteresis, also below zero; ampscale's count stops at the hysteresis.
    bad = min(scaler.hysteresis - state["_hysteresis_tracker"], scaler.hysteresis)
    return {"scale": state["scale"], "good_steps": state["_growth_tracker"], "bad_steps": bad}


SETTINGS = settings(
    {},
    *table(HYSTERESIS, (1024.0, 3, 2), (1024.0, 2, 1), (1024.0, 1, 3), (2.0**126, 1, 2)),
    *table(HYSTERESIS, (1000.0, 2, 2), **ODD),
    *table(HYSTERESIS, (2.0**-147, 2, 1)),
)
CUT = {"how": "the class alone, extracted from its file, on the CPU; one process, gloo", "unpacked": True}
FILES = ("nemo/collections/nlp/parts/nlp_overrides.py", "nemo/lightning/_strategy_lib.py")
KINDS = {f"GradScaler of {file}": extract("nemo_toolkit", file, "GradScaler", **NAMESPACE).GradScaler for file in FILES}

SUBJECTS = tuple(Subject("nemo", "nemo_toolkit", name, kind, step, read, SETTINGS, **CUT) for name, kind in KINDS.items())
