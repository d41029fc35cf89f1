"""
Reference definition of the overflow check.

Spec: OVERFLOW-all-finite, OVERFLOW-empty, OVERFLOW-integers, OVERFLOW-complex, OVERFLOW-both-sides.
"""

from .dtypes import INTEGERS, name_of
from .namespaces import device_of, namespace_of, quiet
from .scaling import unscale
from .trees import leaves
from .typing import Flag, Scale, Tree


def all_finite(tree: Tree) -> Flag:
    """
    Return a bool of shape (), on the device of the arrays: True if no array in *tree* contains an infinity or a NaN.

    Integers and bools are finite; a complex number is finite if both its parts are.
    """
    xp = namespace_of(tree)
    with quiet(xp):  # ml_dtypes warns about a signaling NaN in bfloat16
        flags = [xp.all(xp.isfinite(leaf)) for leaf in leaves(tree) if name_of(leaf.dtype) not in INTEGERS]
    return xp.asarray(xp.all(xp.stack(flags))) if flags else xp.asarray(True, device=device_of(tree))


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """
    Divide the arrays of *tree* by *scale*, and check them for infinities and NaNs.

    Checking the unscaled values is sufficient: dividing by a positive, finite scale never makes an infinity or a NaN finite,
    and a finite value that becomes infinite is an overflow. The arguments are those of `ampscale.unscale_and_check`.
    Without arrays in *tree*, the flag is in the library and on the device of *scale*.
    """
    unscaled = unscale(tree, scale, dtype)
    if leaves(unscaled) or isinstance(scale, int | float):
        finite = all_finite(unscaled)
    else:
        finite = namespace_of(scale).asarray(True, device=device_of(scale))
    return (unscaled if out is None else write(out, unscaled)), finite


def write(out: Tree, tree: Tree) -> Tree:
    """Overwrite each array of *out* with the corresponding array of *tree*; return *out*."""
    for target, leaf in zip(leaves(out), leaves(tree), strict=True):
        target[...] = leaf
    return out
