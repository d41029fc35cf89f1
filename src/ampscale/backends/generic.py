"""Any Array API namespace: the definitions of the core as they are."""

from collections.abc import Callable
from typing import Any

import array_api_compat

from ..core import norms, overflow
from ..core.typing import Array, Tree

NAME = "generic"


def owns(array: Any) -> bool:
    """Whether *array* belongs to this library."""
    owned: bool = array_api_compat.is_array_api_obj(array)
    return owned


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:  # noqa: ARG001
    """
    The loss, and what turns a seed into gradients.

    Raises:
        TypeError: Always: the standard has no differentiation.
    """
    raise TypeError("this array library does not differentiate: give Network(loss_fn, params, vjp=...)")


all_finite = overflow.all_finite
unscale_and_check = overflow.unscale_and_check
unscale_check_and_norm = norms.unscale_check_and_norm
