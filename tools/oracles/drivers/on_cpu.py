"""What the drivers of torch's heirs share: its scaler for the CPU, one process that is a group, a step with real gradients."""

import os
import tempfile
from typing import Any

import torch
import torch.distributed

PARAMETER = torch.nn.Parameter(torch.zeros(2))
OPTIMIZER = torch.optim.SGD([PARAMETER], lr=0.0)
LOSS = torch.zeros(())


class GradScaler(torch.amp.GradScaler):
    """torch's, whose default device is the CPU and not CUDA, where it would turn itself off."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__("cpu", *values, **named)


def give_gradients(finite: bool) -> None:
    """The gradients that the next step finds."""
    PARAMETER.grad = torch.tensor([0.0, 0.0 if finite else torch.inf])


def scaler_steps(scaler: Any, finite: bool) -> None:
    """One training step with the words that torch and its heirs share."""
    scaler.scale(LOSS)
    give_gradients(finite)
    scaler.step(OPTIMIZER)
    scaler.update()


def group_of_one() -> None:
    """A process group of this process alone, over gloo."""
    meeting = os.path.join(tempfile.mkdtemp(), "meeting")
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
