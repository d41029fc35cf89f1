"""
Checks that a tensor can be written to in place.

Spec: OVERFLOW-in-place-checked.
"""

import torch

from ...core.typing import Array

WRITABLE = frozenset([torch.strided, torch.sparse_coo])  # layouts of tensors that can be written in place


def check_target(target: Array, name: str) -> None:
    """
    Raise an error unless torch can write to *target*. torch itself would raise it only after other arrays have been written.

    Raises:
        TypeError: The tensor is neither strided nor a sparse COO tensor.
        ValueError: The tensor is expanded (several values share memory), a zero tensor (which has none), or an inference tensor
            outside of inference mode; or autograd rejects the write (for example, to a leaf that requires a gradient).
    """
    if target.layout not in WRITABLE:
        raise TypeError(f"{name} must be strided or torch.sparse_coo to be written in place, got {target.layout}")
    strides = zip(target.shape, target.stride(), strict=True) if target.layout == torch.strided else ()
    if target._is_zerotensor() or (target.numel() and any(size > 1 and not stride for size, stride in strides)):
        kind = "a zero" if target._is_zerotensor() else "an expanded"
        raise ValueError(f"{name} must have memory for each value to be written in place, got {kind} tensor; clone it")
    if torch.is_grad_enabled() and target.requires_grad:
        try:
            target.unsqueeze(0)[:0].zero_()  # an empty write, which fails like any other
        except RuntimeError as error:
            reason = f"autograd rejects the write: {error}"
            raise ValueError(f"{name} must be detached to be written in place, because {reason}") from None
    if any_frozen([target]):
        raise ValueError(f"{name} must not be an inference tensor, which torch can write to only in torch.inference_mode()")


def any_frozen(targets: list[Array]) -> bool:
    """Return True if one of *targets* is an inference tensor, which cannot be written to outside of inference mode."""
    return not torch.is_inference_mode_enabled() and any(map(torch.Tensor.is_inference, targets))
