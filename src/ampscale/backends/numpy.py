"""NumPy: the definitions of the core, and differentiation by the autograd package."""

from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import numpy as np

from ..core import norms, overflow, scaling
from ..core.namespaces import quiet
from ..core.trees import leaves, rebuilt
from ..core.typing import Array, Namespace, Tree

NAME = "numpy"


def owns(array: Any) -> bool:
    """Whether *array* belongs to this library."""
    return isinstance(array, (np.ndarray, np.generic))  # torch.compile cannot trace `|` of these


def namespace() -> Namespace:
    """The library's Array API namespace."""
    return array_api_compat.numpy


def devices() -> tuple[str, ...]:
    """Where arrays can be put here."""
    return ("cpu",)


def as_network(value: Any) -> Any:  # noqa: ARG001
    """None: NumPy has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    The loss, and what turns a seed into gradients.

    Args:
        loss_fn: ``loss_fn(params, *inputs) -> loss``, written with `autograd.numpy`.
        params: Floating-point arrays.
        inputs: Handed to *loss_fn* as they are.

    Returns:
        What *loss_fn* returned, and ``pullback(seed) -> gradients``: the structure of *params*, each a new array in the
        dtype of its parameter, zero where the loss does not depend on it.

    Raises:
        TypeError: autograd is not installed.
    """
    try:
        from autograd import make_vjp
    except ModuleNotFoundError as missing:
        wanted = 'give Network(loss_fn, params, vjp=...), or pip install "ampscale[numpy]"'
        raise TypeError(f"NumPy does not differentiate by itself: {wanted}") from missing

    count = len(leaves(params))

    def of_leaves(values: list[Array]) -> Array:
        return loss_fn(rebuilt(params, (values[index] for index in range(count))), *inputs)

    with quiet(np):
        backward, loss = make_vjp(of_leaves)(leaves(params))

    def pullback(seed: Array) -> Tree:
        with quiet(np):
            return rebuilt(params, backward(seed))  # autograd adds up into new arrays of the parameters' dtypes

    return loss, pullback


scale = scaling.scale
unscale = scaling.unscale
all_finite = overflow.all_finite
unscale_and_check = overflow.unscale_and_check
unscale_check_and_norm = norms.unscale_check_and_norm
global_norm = norms.global_norm
local_norms = norms.local_norms
clip_by_global_norm = norms.clip_by_global_norm
