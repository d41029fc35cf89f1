"""Access of Paddle's scaler to the optimizer of a hand-written loop: its parameters, its gradients, and its step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat

from ... import functional
from ...backends import Backend
from ...core.trees import leaves, leaves_with_paths
from ...core.typing import Array, Flag
from ...core.validation import check_not_traced
from .._validation import is_torch_optimizer


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters that *optimizer* updates, each with the attribute `grad`. Raise a TypeError if it has none."""
    if is_torch_optimizer(optimizer):
        return [param for group in optimizer.param_groups for param in group["params"]]
    parameters = getattr(optimizer, "parameters", None)
    # A method, as in torch modules, is rejected, and so is an iterator, which can be read only once.
    if not isinstance(parameters, list | tuple) or not all(hasattr(parameter, "grad") for parameter in parameters):
        expected = "a torch.optim.Optimizer, or have a list of parameters, each with value and grad"
        raise TypeError(f"optimizer must be {expected}, got {type(optimizer).__name__}")
    return list(parameters)


def step_method(optimizer: Any) -> Callable[[], Any]:
    """Return the method `step` of *optimizer*. Raise a TypeError if it has no parameters or no such method."""
    parameters_of(optimizer)  # raises a TypeError if there are none
    step: Callable[[], Any] | None = getattr(optimizer, "step", None)
    if not callable(step):
        raise TypeError(f"optimizer must have a method step(), got {type(optimizer).__name__}")
    return step


def minimize_method(optimizer: Any) -> Callable[..., Any]:
    """Return the method `minimize` of *optimizer*; if it has none, a function that ignores its arguments and calls `step`."""
    parameters_of(optimizer)  # raises a TypeError if there are none
    minimize: Callable[..., Any] | None = getattr(optimizer, "minimize", None)
    if callable(minimize):
        return minimize
    step = step_method(optimizer)
    return lambda *_, **__: step()


class Gradients(NamedTuple):
    """Parameters with validated gradients, and the gradients' backend; `in_place` is False if the gradients are immutable."""

    parameters: list[Any]
    backend: Backend
    in_place: bool


def checked_gradients(parameters: list[Any], scale: float) -> Gradients:
    """Validate the gradients of *parameters* without unscaling them; sparse gradients of torch are coalesced."""
    for parameter in parameters:
        if getattr(parameter.grad, "is_sparse", False):
            parameter.grad = parameter.grad.coalesce()
    gradients = [parameter.grad for parameter in parameters]
    in_place = _are_mutable(gradients)
    if not in_place:
        for gradient in leaves(gradients):
            check_not_traced(gradient, "gradients", "the scaler")
    backend = functional.backend_for_scaling(gradients, scale, gradients if in_place else None)
    if backend.NAME == "torch":
        from ...backends.torch.layout import check_target

        for path, gradient in leaves_with_paths(gradients, "gradients"):
            check_target(gradient, path)
    return Gradients(parameters, backend, in_place)


def unscale_gradients(gradients: Gradients, scale: float) -> Flag:
    """Divide *gradients* by *scale*, in place if possible; return True if all values are finite before and after the division."""
    arrays = [parameter.grad for parameter in gradients.parameters]
    if gradients.in_place:
        return gradients.backend.unscale_and_check(arrays, scale, arrays)[1]
    unscaled, finite = gradients.backend.unscale_and_check(arrays, scale)
    for parameter, gradient in zip(gradients.parameters, unscaled, strict=True):
        parameter.grad = gradient
    return finite


def _are_mutable(gradients: list[Array | None]) -> bool:
    """Return True if all *gradients* are of libraries with mutable arrays, even if one of them is read-only."""
    return all(
        gradient is None or array_api_compat.is_writeable_array(gradient) or array_api_compat.is_numpy_array(gradient)
        for gradient in gradients
    )
