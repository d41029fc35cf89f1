"""
Scaling and unscaling, the definition: cast up, multiply or divide, round once.

Spec: SCALING-scale, SCALING-unscale-divides, SCALING-round-once, SCALING-dtype-kept, SCALING-widen.
"""

import operator
from collections.abc import Callable
from typing import Any

import array_api_compat

from .dtypes import COMPLEX_PARTS, FLOATS, name_of, wide
from .namespaces import namespace_of, quiet
from .trees import map_leaves
from .typing import Array, Scale, Tree

Operation = Callable[[Array, Array], Array]


def scale(tree: Tree, scale: Scale, *, multiply: Operation = operator.mul) -> Tree:
    """
    *tree* times *scale*, as new arrays of the same dtypes.

    Args:
        tree: Floating-point or complex arrays of any shape.
        scale: float32 or float64, shape () or (1,), or a Python number. Positive and finite.
        multiply: A library's product of float32 or of float64, which must be IEEE 754's.

    The product is taken in float32 (float64 for float64 arrays) and rounded once to the array's dtype, so a scale
    of 2**16 does not become infinite on its way to a float16 array.
    """
    with quiet(namespace_of(tree)):
        return map_leaves(lambda leaf: applied(multiply, leaf, scale, wide(name_of(leaf.dtype)), leaf.dtype), tree)


def unscale(tree: Tree, scale: Scale, dtype: str | None = None, *, divide: Operation = operator.truediv) -> Tree:
    """
    *tree* divided by *scale*, as new arrays.

    Args:
        tree: Floating-point or complex arrays of any shape.
        scale: float32 or float64, shape () or (1,), or a Python number. Positive and finite.
        dtype: "float32" or "float64": arrays narrower than this come out in it; wider ones keep their dtype.
        divide: A library's quotient of float32 or of float64, which must be IEEE 754's.

    A division, not a product with a reciprocal: taken in float32 (float64 for float64 arrays) and rounded once.
    """
    with quiet(namespace_of(tree)):
        return map_leaves(
            lambda leaf: applied(divide, leaf, scale, wide(name_of(leaf.dtype)), _unscaled_dtype(leaf, dtype)), tree
        )


def unscaled_dtype(name: str, dtype: str | None) -> str:
    """Return the dtype of an unscaled array: *dtype* if one is asked for and the array is real and narrower, else its own."""
    narrower = dtype is not None and name in FLOATS and FLOATS[name].fraction_bits < FLOATS[dtype].fraction_bits
    return dtype if dtype is not None and narrower else name


def scalar_like(value: Scale, like: Array, dtype: Any) -> Array:
    """*value* as an array of shape () in *dtype*, in the library and on the device of *like*."""
    xp = array_api_compat.array_namespace(like)
    if isinstance(value, int | float):  # NumPy's float64 is one, and may stand beside any library's arrays
        return xp.asarray(value, dtype=dtype, device=array_api_compat.device(like))
    return xp.astype(xp.reshape(value, ()), dtype)


def in_dtype(leaf: Array, name: str) -> Array:
    """*leaf* in the real dtype *name*, which its library has under that name; *leaf* itself where it is so already."""
    xp = array_api_compat.array_namespace(leaf)
    return leaf if name_of(leaf.dtype) == name else xp.astype(leaf, getattr(xp, name))


def applied(operation: Operation, leaf: Array, factor: Scale, within: str, dtype: Any) -> Array:
    """
    *operation* on *leaf* and *factor*, a number of shape (): computed in the dtype *within*, rounded once to *dtype*.

    A complex leaf is taken part by part: in a product of complex numbers an infinity in one makes a NaN of the other.
    """
    xp = array_api_compat.array_namespace(leaf)
    if name_of(leaf.dtype) in COMPLEX_PARTS:
        part = getattr(xp, COMPLEX_PARTS[name_of(leaf.dtype)])
        real, imag = (applied(operation, half, factor, within, part) for half in (xp.real(leaf), xp.imag(leaf)))
        return _complex(real, imag, leaf)
    result = operation(in_dtype(leaf, within), scalar_like(factor, leaf, getattr(xp, within)))
    rounded = xp.astype(result, dtype, copy=False)
    return rounded if leaf.shape else xp.reshape(xp.reshape(rounded, (1,)), ())  # NumPy gives a scalar for an array of shape ()


def _complex(real: Array, imag: Array, like: Array) -> Array:
    """The two parts put together. The standard has no word for it but the product; all libraries have a view of pairs."""
    xp = array_api_compat.array_namespace(like)
    pairs = xp.stack([real, imag], axis=-1)
    if hasattr(pairs, "view"):
        native = getattr(xp, name_of(like.dtype))  # as the parts are; NumPy's arrays may have another byte order
        return xp.astype(xp.reshape(pairs.view(native), like.shape), like.dtype, copy=False)
    return xp.astype(real, like.dtype) + xp.astype(imag, like.dtype) * xp.full_like(like, 1j)


def _unscaled_dtype(leaf: Array, dtype: str | None) -> Any:
    name = unscaled_dtype(name_of(leaf.dtype), dtype)
    return leaf.dtype if name == name_of(leaf.dtype) else getattr(array_api_compat.array_namespace(leaf), name)
