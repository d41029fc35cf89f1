"""
Backends: one module per array library, all with the same contents in the same order.

`backend_of` finds the one that an array belongs to. Nothing is imported that its user has not imported already.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ..core.namespaces import check_one_library
from ..core.trees import leaves
from ..core.typing import Array, Flag, Scale, Tree
from . import generic, numpy


class Backend(Protocol):
    """What every backend module offers, in this order."""

    NAME: str

    def owns(self, array: Any) -> bool:
        """Whether *array* belongs to this library."""

    def vjp(self, loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """The loss, and what turns a seed into gradients."""

    def all_finite(self, tree: Tree) -> Flag:
        """As `core.overflow.all_finite`, bit for bit."""

    def unscale_and_check(self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
        """As `core.overflow.unscale_and_check`, bit for bit."""

    def unscale_check_and_norm(
        self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None
    ) -> tuple[Tree, Flag, Array]:
        """As `core.norms.unscale_check_and_norm`."""


_BACKENDS: tuple[Backend, ...] = (numpy, generic)


def backends() -> tuple[str, ...]:
    """The names of the backends, the ones for particular libraries first."""
    return tuple(backend.NAME for backend in _BACKENDS)


def backend_of(tree: Tree, **beside: Tree) -> Backend:
    """
    The backend that the arrays of *tree* belong to; NumPy's where there is none.

    Args:
        tree: Arrays in tuples, lists, dicts and NamedTuples.
        beside: Other trees that are to be used with it, under the names that an error gives them.

    Raises:
        TypeError: The arrays come from more than one library or device, or something in a tree is no array.
    """
    check_one_library(tree=tree, **beside)
    arrays = leaves(tree)
    return next(backend for backend in _BACKENDS if not arrays or backend.owns(arrays[0]))
