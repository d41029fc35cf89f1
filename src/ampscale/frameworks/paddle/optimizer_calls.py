"""Calls of Paddle's scaler to the optimizer of a hand-written loop: its parameters, its step, and its gradients."""

import sys
from collections.abc import Callable
from typing import Any

import array_api_compat

from ... import functional
from ...core.typing import Array, Flag
from .._validation import is_torch_optimizer


def parameters_of(optimizer: Any) -> list[Any]:
    """
    The parameters that an optimizer of a hand-written loop moves, each with `grad`.

    Raises:
        TypeError: It has none.
    """
    if is_torch_optimizer(optimizer):
        return [param for group in optimizer.param_groups for param in group["params"]]
    if not hasattr(optimizer, "parameters"):
        wanted = "a torch.optim.Optimizer, or have parameters, each with value and grad"
        raise TypeError(f"optimizer must be {wanted}, got {type(optimizer).__name__}")
    return list(optimizer.parameters)


def step_of(optimizer: Any) -> Callable[[], Any]:
    """
    What makes an optimizer of a hand-written loop step.

    Raises:
        TypeError: It has no parameters, or no method `step`.
    """
    parameters_of(optimizer)
    step: Callable[[], Any] | None = getattr(optimizer, "step", None)
    if step is None or not callable(step):
        raise TypeError(f"optimizer must have a method step() for this, got {type(optimizer).__name__}")
    return step


def minimize_of(optimizer: Any) -> Callable[..., Any]:
    """
    What makes an optimizer of a hand-written loop minimize; its `step`, which needs no loss, where it has no such method.

    Raises:
        TypeError: It has no parameters, or neither method.
    """
    parameters_of(optimizer)
    if callable(getattr(optimizer, "minimize", None)):
        minimize: Callable[..., Any] = optimizer.minimize
        return minimize
    step = step_of(optimizer)
    return lambda *_, **__: step()


def check_gradients(parameters: list[Any], scale: float) -> None:
    """
    Check that the gradients of *parameters* can be unscaled, in place if their library can, and write nothing.

    Raises:
        TypeError, ValueError: They cannot.
    """
    gradients = [parameter.grad for parameter in parameters]
    functional.check_unscale(gradients, scale, gradients if _are_writable(gradients) else None)
    if "torch" in sys.modules and any(map(array_api_compat.is_torch_array, gradients)):
        from ...backends.torch.layout import check_target

        for gradient in gradients:
            if gradient is not None:
                check_target(gradient, "a gradient")


def unscale_gradients(parameters: list[Any], scale: float) -> Flag:
    """
    Divides the gradients of *parameters* by *scale*: in place, save for arrays that cannot be written to, and for sparse
    ones with an index twice, which are replaced.

    Returns:
        Bool, shape (): whether all were finite, before and after.
    """
    for parameter in parameters:
        if getattr(parameter.grad, "is_sparse", False):
            parameter.grad = parameter.grad.coalesce()
    gradients = [parameter.grad for parameter in parameters]
    if _are_writable(gradients):
        return functional.unscale_and_check(gradients, scale, out=gradients)[1]
    unscaled, finite = functional.unscale_and_check(gradients, scale)
    for parameter, gradient in zip(parameters, unscaled, strict=True):
        parameter.grad = gradient
    return finite


def _are_writable(gradients: list[Array | None]) -> bool:
    """Return True if arrays of these libraries can be written to, even if one of these may not be."""
    return all(
        gradient is None or array_api_compat.is_writeable_array(gradient) or array_api_compat.is_numpy_array(gradient)
        for gradient in gradients
    )
