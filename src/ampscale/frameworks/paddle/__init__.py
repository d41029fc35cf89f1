"""
Paddle's documented loss scaling class, `paddle.amp.GradScaler`, for arrays of any supported library.

Spec: spec/profiles/paddle.md.
"""

from .grad_scaler import GradScaler

__all__ = ["GradScaler"]
