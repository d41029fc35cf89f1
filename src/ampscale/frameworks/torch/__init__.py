"""
torch's loss scaling: `torch.amp.GradScaler`.

Spec: spec/profiles/torch.md.
"""

from .grad_scaler import GradScaler

__all__ = ["GradScaler"]
