"""
Reference definition of scaling and unscaling: convert to the compute dtype, multiply or divide, round once.

Spec: SCALING-scale, SCALING-unscale-divides, SCALING-round-once, SCALING-dtype-kept, SCALING-widen.
"""

import operator
from collections.abc import Callable
from typing import Any

import array_api_compat

from .dtypes import COMPLEX_PARTS, compute_dtype, name_of, unscaled_dtype
from .namespaces import as_array, namespace_of, quiet
from .trees import map_leaves
from .typing import Array, Scale, Tree

Operation = Callable[[Array, Array], Array]


def scale(tree: Tree, scale: Scale) -> Tree:
    """
    Multiply the arrays of *tree* by *scale*; return new arrays of the same dtypes.

    The product is computed in float32 (float64 for float64 arrays) and rounded once to the array's dtype: in float16, a
    scale of 2**16 would be infinite.
    """
    with quiet(namespace_of(tree)):
        return map_leaves(lambda leaf: apply_factor(operator.mul, leaf, scale, leaf.dtype), tree)


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """
    Divide the arrays of *tree* by *scale*; return new arrays.

    This is a division, not a multiplication by the reciprocal: computed in float32 (float64 for float64 arrays) and rounded
    once, to the `unscaled_dtype`.
    """
    with quiet(namespace_of(tree)):
        return map_leaves(lambda leaf: apply_factor(operator.truediv, leaf, scale, _unscaled_dtype(leaf, dtype)), tree)


def scalar_like(value: Scale, like: Array, dtype: Any) -> Array:
    """Return *value* as an array of shape () and *dtype*, in the library and on the device of *like*."""
    if isinstance(value, int | float):  # including NumPy's float64 scalars, which are accepted with any library's arrays
        return as_array(1.0 * value, like, dtype)  # torch rejects ints of more than 64 bits
    xp = array_api_compat.array_namespace(like)
    return xp.astype(xp.reshape(value, ()), dtype)


def number_host(value: Scale) -> float:
    """Return a Python number, or an array of shape () or (1,), as a float. An array on a device is copied to the host."""
    is_scalar = isinstance(value, int | float) or value.shape == ()
    return float(value if is_scalar else value[0])


def in_dtype(leaf: Array, name: str) -> Array:
    """Convert *leaf* to the real dtype *name*; return *leaf* itself if it has that dtype."""
    xp = array_api_compat.array_namespace(leaf)
    return leaf if name_of(leaf.dtype) == name else xp.astype(leaf, getattr(xp, name))


def widened(leaf: Array) -> Array:
    """Convert a 16-bit float array to float32; return any other array unchanged."""
    return in_dtype(leaf, "float32") if name_of(leaf.dtype) in ("float16", "bfloat16") else leaf


def real_parts(leaf: Array) -> list[Array]:
    """Return the real and the imaginary part of a complex leaf, or [leaf] for a real one."""
    xp = array_api_compat.array_namespace(leaf)
    return [xp.real(leaf), xp.imag(leaf)] if name_of(leaf.dtype) in COMPLEX_PARTS else [leaf]


def from_real_parts(parts: list[Array], like: Array) -> Array:
    """Return an array with the shape and dtype of *like*, given its `real_parts`, which may be flat or in a wider dtype."""
    xp, name = array_api_compat.array_namespace(like), name_of(like.dtype)
    if name not in COMPLEX_PARTS:
        return xp.reshape(xp.astype(parts[0], like.dtype), like.shape)
    # Attributes of the namespace have native byte order; *like* may have another.
    pairs = xp.stack([xp.astype(part, getattr(xp, COMPLEX_PARTS[name]), copy=False) for part in parts], axis=-1)
    if hasattr(pairs, "view") and not hasattr(like, "mask"):  # pairs of masked arrays would have lost the mask
        return xp.astype(xp.reshape(pairs.view(getattr(xp, name)), like.shape), like.dtype, copy=False)
    # The Array API has no function that combines two parts. This product changes some zeros and infinities.
    real, imag = (xp.astype(part, like.dtype) for part in parts)
    return xp.reshape(real + imag * xp.full_like(imag, 1j), like.shape)


def apply_factor(operation: Operation, leaf: Array, factor: Scale, dtype: Any) -> Array:
    """
    Apply *operation* to *leaf* and the number *factor* in the compute dtype of *leaf*, and round once to *dtype*.

    The real and imaginary parts of a complex leaf are computed separately: in a complex product, an infinity in one part
    would make the other part NaN.
    """
    xp, name = array_api_compat.array_namespace(leaf), name_of(leaf.dtype)
    if name in COMPLEX_PARTS:
        return from_real_parts([apply_factor(operation, part, factor, part.dtype) for part in real_parts(leaf)], leaf)
    compute = compute_dtype(name)
    result = operation(in_dtype(leaf, compute), scalar_like(factor, leaf, getattr(xp, compute)))
    rounded = xp.astype(result, dtype, copy=False)
    # NumPy's operations return a scalar instead of an array of shape (), and so does reshaping a scalar to ().
    return rounded if leaf.shape else xp.reshape(xp.reshape(rounded, (1,)), ())


def _unscaled_dtype(leaf: Array, dtype: str | None) -> Any:
    """Return the `unscaled_dtype` as a dtype of the array library: that of *leaf*, in its byte order, unless it is widened."""
    name = unscaled_dtype(name_of(leaf.dtype), dtype)
    return leaf.dtype if name == name_of(leaf.dtype) else getattr(array_api_compat.array_namespace(leaf), name)
