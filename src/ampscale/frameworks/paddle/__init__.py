"""
Paddle's loss scaling: `paddle.amp.GradScaler`.

Spec: spec/profiles/paddle.md.
"""

from .grad_scaler import GradScaler

__all__ = ["GradScaler"]
