"""Mesh axes in the types of JAX arrays: the axes over which an array varies in `jax.shard_map`, and the explicit axes."""

import jax

from ...core.typing import Array


def varying_axes(array: Array) -> frozenset[str]:
    """Return the axes of `jax.shard_map` over which *array* varies; none if JAX does not track them (``check_vma=False``)."""
    aval = jax.typeof(array)
    if hasattr(aval, "manual_axis_type"):
        return frozenset(aval.manual_axis_type.varying)
    return frozenset(getattr(aval, "vma", ()))  # older versions of JAX


def varying_like(loss: Array, arrays: list[Array]) -> list[Array]:
    """Cast *arrays* to vary over all axes over which *loss* varies; return *arrays* itself if all of them already do."""
    axes = varying_axes(loss) if isinstance(loss, jax.Array) else frozenset()  # a loss that is not an array is rejected later
    missing = [tuple(sorted(axes - varying_axes(array))) for array in arrays] if axes else []
    if not any(missing):
        return arrays
    return [jax.lax.pcast(array, names, to="varying") if names else array for array, names in zip(arrays, missing, strict=True)]


def is_explicitly_sharded(array: Array) -> bool:
    """Return True if *array* is distributed over mesh axes of the type `AxisType.Explicit`: JAX then rejects ``reshape(-1)``."""
    return any(axes is not None for axes in jax.typeof(array).sharding.spec)
