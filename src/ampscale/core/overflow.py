"""
The overflow check, and the two detectors behind it.

Spec: OVERFLOW-all-finite, OVERFLOW-empty, OVERFLOW-integers, OVERFLOW-complex, OVERFLOW-both-sides,
OVERFLOW-gradient-scan, OVERFLOW-status-register.
"""

from typing import Any, Protocol

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


class Detector(Protocol):
    """What finds an overflow between a start and an end. The token carries what was seen, so a detector has no state."""

    def start(self, like: Tree) -> Any:
        """A cleared token, on the device of *like*."""

    def observe(self, token: Any, tree: Tree) -> None:
        """Lets the token see values on the way."""

    def finite(self, token: Any, output: Tree) -> Flag:
        """Whether everything was finite: bool, shape ()."""


class GradientScan:
    """Looks at the output alone, at the end. Any object will do as the token."""

    def start(self, like: Tree) -> Any:
        """A token that nothing depends on."""
        return _Status(like)

    def observe(self, token: Any, tree: Tree) -> None:
        """Nothing: what is on the way does not count."""

    def finite(self, token: Any, output: Tree) -> Flag:
        """Whether *output* is finite."""
        return all_finite(output)


class StatusRegister:
    """A sticky flag, as a device's status register: once something non-finite was seen, it stays so until the next start."""

    def start(self, like: Tree) -> Any:
        """A register in which nothing has been seen yet."""
        return _Status(like)

    def observe(self, token: Any, tree: Tree) -> None:
        """Sees *tree*. A token of another make cannot remember, and is passed over."""
        if isinstance(token, _Status):
            token.finite = token.finite & all_finite(tree)

    def finite(self, token: Any, output: Tree) -> Flag:
        """Whether everything observed since the start, and *output*, is finite."""
        seen = all_finite(output)
        return token.finite & seen if isinstance(token, _Status) else seen


class _Status:
    """The opaque token that orders the start of a check and its end."""

    def __init__(self, like: Tree) -> None:
        self.finite: Flag = _true(like)


def _true(like: Tree) -> Array:
    return namespace_of(like).asarray(True, device=device_of(like))
