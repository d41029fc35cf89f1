"""Shared code of the drivers of torch and its subclasses: a scaler for the CPU, a process group, and a training step."""

import os
import tempfile
from typing import Any

import torch
import torch.distributed

PARAMETER = torch.nn.Parameter(torch.zeros(2))
OPTIMIZER = torch.optim.SGD([PARAMETER], lr=0.0)
LOSS = torch.zeros(())


class GradScaler(torch.amp.GradScaler):
    """Scaler of torch whose default device is the CPU; without CUDA, torch's default would disable the scaler."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__("cpu", *values, **named)


def give_gradients(finite: bool) -> None:
    """Set the gradients of the next step."""
    PARAMETER.grad = torch.tensor([0.0, 0.0 if finite else torch.inf])


def scaler_steps(scaler: Any, finite: bool) -> None:
    """Run a training step with the methods that torch's scaler and its subclasses share."""
    scaler.scale(LOSS)
    give_gradients(finite)
    scaler.step(OPTIMIZER)
    scaler.update()


def group_of_one() -> None:
    """Create a process group of this process alone, with gloo."""
    file = os.path.join(tempfile.mkdtemp(), "rendezvous")
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
