"""
torch's documented loss scaling class: a drop-in replacement for `torch.amp.GradScaler`.

Spec: spec/profiles/torch.md.
"""

from .grad_scaler import GradScaler

__all__ = ["GradScaler"]
