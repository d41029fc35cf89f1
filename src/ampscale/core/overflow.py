"""
The overflow check.

Spec: OVERFLOW-all-finite, OVERFLOW-empty, OVERFLOW-integers, OVERFLOW-complex, OVERFLOW-both-sides.
"""

from .dtypes import INTEGERS, name_of
from .namespaces import device_of, namespace_of, quiet
from .scaling import unscale
from .trees import leaves
from .typing import Array, Flag, Scale, Tree


def all_finite(tree: Tree) -> Flag:
    """
    Whether no array in *tree* holds an infinity or a NaN.

    Args:
        tree: Arrays of any shape and dtype. Integers and bools are finite; a complex number is finite where both
            its parts are.

    Returns:
        Bool, shape (), where the arrays are. True for a tree without arrays.
    """
    xp = namespace_of(tree)
    with quiet(xp):  # ml_dtypes warns of a signalling NaN in bfloat16
        flags = [xp.all(xp.isfinite(leaf)) for leaf in leaves(tree) if name_of(leaf.dtype) not in INTEGERS]
    return xp.asarray(xp.all(xp.stack(flags))) if flags else _true(tree)


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """
    *tree* divided by *scale*, and whether all of it is finite.

    Args:
        tree: Floating-point or complex arrays of any shape.
        scale: float32 or float64, shape () or (1,), or a Python number. Positive and finite.
        out: Arrays of the same shapes and dtypes to write the result into; may be *tree* itself.
        dtype: Without *out*: narrower arrays come out in this dtype, as from `unscale`.

    Returns:
        The unscaled tree (*out* where it is given) and a bool of shape (). The unscaled values alone are looked at,
        and that sees both sides: a division by a positive, finite scale never makes an infinity or a NaN finite,
        and a finite value that it makes infinite is an overflow.
    """
    unscaled = unscale(tree, scale, dtype)
    finite = all_finite(unscaled)
    return (unscaled if out is None else write(out, unscaled)), finite


def write(out: Tree, tree: Tree) -> Tree:
    """*out*, after each of its arrays was overwritten with the one in the same place of *tree*."""
    for target, leaf in zip(leaves(out), leaves(tree), strict=True):
        target[...] = leaf
    return out


def _true(like: Tree) -> Array:
    return namespace_of(like).asarray(True, device=device_of(like))
