"""
Progress of an optimizer of torch's `GradScaler` between two updates of the scale.

Spec: TORCH-call-order, TORCH-interrupted.
"""

from dataclasses import dataclass
from typing import Any

import torch

from .._calls import UNSCALING, Site


@dataclass(slots=True)
class Progress:
    """
    Progress of one optimizer between two updates of the scale.

    A scaler sets the stage before it writes, so that no gradient is divided twice after an error between two writes.
    """

    optimizer: torch.optim.Optimizer  # keeps a reference, so that the id is not reused
    site: Site  # of the call that the stage results from
    stage: str = UNSCALING
    found_inf: torch.Tensor | None = None  # float32, shape (), on the scale's device: 1.0 for an overflow; None without gradients
    finite: bool | None = None  # inverse of `found_inf` if the ranks' agreement has read it on the host
    applied: bool | torch.Tensor = False
    observed: Any = None  # scale and gradients that the monitor received; None without a monitor
