"""
Placement of the scale of torch's `GradScaler`, and the progress of its optimizers between two updates.

Spec: TORCH-first-scale, TORCH-call-order, TORCH-interrupted.
"""

from dataclasses import dataclass
from enum import Enum

import torch

from .._progress import UNSCALING, Stage


class Placement(Enum):
    """Placement of the scale on a device; the value completes an error message that starts with the name of a method."""

    PENDING = "must be called after scale(): no tensor has been scaled yet"
    DONE = "is allowed"
    INTERRUPTED = "requires a consistent scale, and writing it was interrupted: load a state dict that was saved before"


PENDING, DONE, INTERRUPTED = Placement  # reading a member through the class takes 70 ns in Python 3.11


@dataclass(slots=True)
class Progress:
    """Progress of one optimizer between two updates of the scale."""

    optimizer: torch.optim.Optimizer  # keeps a reference, so that the id is not reused
    stage: Stage = UNSCALING
    found_inf: torch.Tensor | None = None  # float32, shape (), on the scale's device: 1.0 for an overflow; None without gradients
    finite: bool | None = None  # inverse of `found_inf` if the ranks' agreement has read it on the host
    applied: bool | torch.Tensor = False
