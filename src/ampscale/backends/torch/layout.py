"""
Tensors that can be written to in place.

Spec: OVERFLOW-in-place-checked.
"""

import torch

from ...core.typing import Array


def check_target(target: Array, name: str) -> None:
    """
    Raise an error unless torch can write to *target*; torch itself raises one when it has written to others already.

    Raises:
        TypeError: It is neither strided nor a sparse COO tensor.
        ValueError: It is expanded, so that several of its values share memory; or autograd, which records, forbids it, as for
            a leaf that requires a gradient; or it is an inference tensor outside of inference mode.
    """
    if target.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(f"{name} must be strided or torch.sparse_coo to be written in place, got {target.layout}")
    if target.layout == torch.strided and any(
        size > 1 and not stride for size, stride in zip(target.shape, target.stride(), strict=True)
    ):
        raise ValueError(f"{name} must have memory for each value to be written in place, got an expanded tensor: clone it")
    if torch.is_grad_enabled() and target.requires_grad:
        try:
            target.unsqueeze(0)[:0].zero_()  # changes no value
        except RuntimeError as error:
            raise ValueError(f"{name} must be detached to be written in place, since autograd forbids it: {error}") from None
    if are_frozen([target]):
        raise ValueError(f"{name} must be no inference tensor to be written in place outside of torch.inference_mode()")


def are_frozen(targets: list[Array]) -> bool:
    """Return True if one of *targets* is an inference tensor, which cannot be written to outside of inference mode."""
    return not torch.is_inference_mode_enabled() and any(map(torch.Tensor.is_inference, targets))
