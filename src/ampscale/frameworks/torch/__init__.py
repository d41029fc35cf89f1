"""
torch's documented loss scaling class: a drop-in replacement for `torch.amp.GradScaler`.

Spec: spec/profiles/torch.md.
"""

try:
    from .grad_scaler import GradScaler
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'ampscale.torch requires {error.name}: pip install "ampscale[torch]"', name=error.name) from error

__all__ = ["GradScaler"]
