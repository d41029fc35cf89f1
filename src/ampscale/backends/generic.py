"""Generic backend for arrays of any Array API library. It uses the definitions of the core unchanged."""

from collections.abc import Callable
from typing import Any

import array_api_compat

from ..core import norms, overflow, scaling, statistics
from ..core.trees import leaves
from ..core.typing import Array, Namespace, Tree

NAME = "generic"


def owns(array: Any) -> bool:
    """Return True if *array* belongs to any Array API library."""
    is_array: bool = array_api_compat.is_array_api_obj(array)
    return is_array


def namespace() -> Namespace:
    """Raise a TypeError, because there is no library to create arrays with."""
    raise TypeError("the generic backend creates no arrays; choose the backend of a library with use_backend()")


def devices() -> tuple[str, ...]:
    """Return (), because there is no library to create arrays with."""
    return ()


def as_network(value: Any) -> Any:  # noqa: ARG001
    """Return None, because the Array API standard has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:  # noqa: ARG001
    """Raise a TypeError, because the Array API standard has no differentiation."""
    cls = type(next(iter(leaves(params)), None))
    expected = "arrays of a library that differentiates: torch, JAX, or NumPy with autograd"
    remedy = "pass such arrays (flax nnx: nnx.as_pure(state)), or use Network(loss_fn, params, vjp=...)"
    raise TypeError(f"params must be {expected}, got {cls.__module__}.{cls.__name__}; {remedy}")


scale = scaling.scale
unscale = scaling.unscale
all_finite = overflow.all_finite
unscale_and_check = overflow.unscale_and_check
unscale_check_and_norm = norms.unscale_check_and_norm
global_norm = norms.global_norm
local_norms = norms.local_norms
clip_by_global_norm = norms.clip_by_global_norm
measure = statistics.statistics
unscale_check_and_measure = statistics.unscale_check_and_measure
exponent_histogram = statistics.exponent_histogram
