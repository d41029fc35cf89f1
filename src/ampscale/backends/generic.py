"""Any Array API namespace: the definitions of the core as they are."""

from collections.abc import Callable
from typing import Any

import array_api_compat

from ..core import norms, overflow, scaling
from ..core.typing import Array, Namespace, Tree

NAME = "generic"


def owns(array: Any) -> bool:
    """Whether *array* belongs to this library."""
    owned: bool = array_api_compat.is_array_api_obj(array)
    return owned


def namespace() -> Namespace:
    """
    The library's Array API namespace.

    Raises:
        TypeError: Always: this backend makes no arrays of its own.
    """
    raise TypeError("the generic backend makes no arrays of its own: it takes those of any library")


def devices() -> tuple[str, ...]:
    """Where arrays can be put here: nowhere, since there is no library."""
    return ()


def as_network(value: Any) -> Any:  # noqa: ARG001
    """None: the standard has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:  # noqa: ARG001
    """
    The loss, and what turns a seed into gradients.

    Raises:
        TypeError: Always: the standard has no differentiation.
    """
    raise TypeError("this array library does not differentiate: give Network(loss_fn, params, vjp=...)")


scale = scaling.scale
unscale = scaling.unscale
all_finite = overflow.all_finite
unscale_and_check = overflow.unscale_and_check
unscale_check_and_norm = norms.unscale_check_and_norm
global_norm = norms.global_norm
local_norms = norms.local_norms
clip_by_global_norm = norms.clip_by_global_norm
