"""BMTrain: `OptimManager` with a real optimizer and float16 gradients; its CUDA parts are replaced for the CPU."""

from types import SimpleNamespace
from typing import Any

import torch
from environments.published import extract
from subject import Subject, maker, pairs, settings, with_saved_state

STREAM = SimpleNamespace(wait_stream=lambda _: None)
PARAMETER = torch.nn.Parameter(torch.zeros(2, dtype=torch.half))
NAMES = {
    "init_scale": "loss_scale",
    "growth_factor": "loss_scale_factor",
    "growth_interval": "loss_scale_steps",
    "min_scale": "min_loss_scale",
    "max_scale": "max_loss_scale",
}


class OnCPU:
    """Replacement for torch, without CUDA streams and with zeros on the CPU."""

    cuda = SimpleNamespace(current_stream=lambda: STREAM)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def zeros(*size: int, dtype: torch.dtype, **_: str) -> torch.Tensor:
        """Return zeros on the CPU."""
        return torch.zeros(*size, dtype=dtype)


def has_inf_nan(gradient: torch.Tensor, flag: torch.Tensor) -> None:
    """Set the flag if the gradient is non-finite, as the CUDA kernel does."""
    if not torch.isfinite(gradient).all():
        flag.fill_(1)


BMTRAIN = extract(
    "bmtrain",
    "bmtrain/optim/optim_manager.py",
    "OptimManager",
    "check_overflow",
    "grad_rescale",
    config={"zero_size": 1, "load_stream": STREAM},
    has_inf_nan=has_inf_nan,
    print_rank=lambda *_: None,
    torch=OnCPU(),
)


def fresh(**values: Any) -> Any:
    manager = maker(BMTRAIN.OptimManager, **NAMES)(**values)
    manager.add_optimizer(torch.optim.SGD([PARAMETER], lr=0.0))
    return manager


def step(manager: Any, finite: bool) -> None:
    PARAMETER.grad = torch.tensor([0.0, 0.0 if finite else torch.inf], dtype=torch.half)
    manager.step()


def save(manager: Any) -> dict[str, float]:
    return {"loss_scale": manager.loss_scale, "steps_since_last_scale": manager.steps_since_last_scale}


def restore(manager: Any, state: dict[str, float]) -> None:
    vars(manager).update(state)


def read(after: tuple[Any, dict[str, float]]) -> dict[str, float]:
    return {"scale": after[1]["loss_scale"], "good_steps": after[1]["steps_since_last_scale"]}


SETTINGS = settings(
    {"init_scale": 1024.0},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 4.0, "growth_interval": 2, "min_scale": 1.0},
    {"init_scale": 7.0, "growth_interval": 2, "min_scale": 1.0, "max_scale": 20.0},
    {"init_scale": 32.0, "growth_interval": 1, "min_scale": 8.0, "max_scale": 64.0},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 3, "min_scale": 100.0, "max_scale": 30000.0},
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 49},
) + settings(
    *pairs((2.0**1022, 1)),
    reason="it blocks growths at infinity and keeps counting; the rule has no upper bound, and restarts the count",
)
HOW = "the class alone, extracted from its file; its CUDA kernel and streams replaced for the CPU"
FUNCTIONS = with_saved_state(fresh, step, save, restore)

SUBJECTS = (Subject("bmtrain", "bmtrain", "OptimManager", *FUNCTIONS, read, SETTINGS, how=HOW, unpacked=True),)
