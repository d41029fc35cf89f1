"""Interface of a backend. `Backend` lists its members in the order in which every backend module defines them."""

from collections.abc import Callable
from typing import Any, Protocol

from ..core.typing import Array, Flag, Namespace, Scale, Tree
from ..parsing import excerpt


class Backend(Protocol):
    """
    Interface between the public functions and an array library: a module, or any object, with these members.

    The public functions validate arguments before they call a backend. Each function must return the same bits as the function
    of `ampscale.core` that its docstring names; norms may differ by 2 ulp.
    """

    NAME: str  # name of the backend, which is also the name of the library's top-level module

    def owns(self, array: Any) -> bool:
        """Return True if *array* belongs to this library. The result must depend on the type of *array* only."""

    def namespace(self) -> Namespace:
        """Return the library's Array API namespace."""

    def devices(self) -> tuple[str, ...]:
        """Return the devices on which arrays can be created, in the library's notation; () if there is none."""

    def as_network(self, value: Any) -> Any:
        """Return an object with `params` and `vjp` that wraps *value*; None if *value* is not a network of this library."""

    def vjp(self, loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """
        Return ``loss_fn(params, *inputs)``, and a function that maps an output cotangent to gradients like *params*.

        Each gradient is a new array in the dtype of its parameter, and zero if the loss does not depend on this parameter.
        """

    def scale(self, tree: Tree, scale: Scale) -> Tree:
        """Implement `core.scaling.scale`."""

    def unscale(self, tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
        """Implement `core.scaling.unscale`."""

    def all_finite(self, tree: Tree) -> Flag:
        """Implement `core.overflow.all_finite`."""

    def unscale_and_check(self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
        """Implement `core.overflow.unscale_and_check`."""

    def unscale_check_and_norm(
        self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None
    ) -> tuple[Tree, Flag, Array]:
        """Implement `core.norms.unscale_check_and_norm`."""

    def global_norm(self, tree: Tree) -> Array:
        """Implement `core.norms.global_norm`."""

    def local_norms(self, tree: Tree) -> Array:
        """Implement `core.norms.local_norms`."""

    def clip_by_global_norm(self, tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
        """Implement `core.norms.clip_by_global_norm`."""

    def measure(self, tree: Tree) -> Array:
        """Implement `core.statistics.statistics`."""

    def unscale_check_and_measure(
        self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None
    ) -> tuple[Tree, Flag, Array]:
        """Implement `core.statistics.unscale_check_and_measure`."""

    def exponent_histogram(self, tree: Tree) -> Array:
        """Implement `core.statistics.exponent_histogram`."""


CONTENTS = ("NAME", *(name for name in vars(Backend) if not name.startswith("_")))


def check_backend(backend: Any, name: str) -> None:
    """Raise a TypeError unless *backend*, which the message calls *name*, has a str NAME and the functions of `Backend`."""
    missing = [] if isinstance(getattr(backend, "NAME", None), str) else ["NAME"]
    missing += [function for function in CONTENTS[1:] if not callable(getattr(backend, function, None))]
    if missing:
        expected = "a str NAME and the functions of a backend"
        raise TypeError(f"{name} must have {expected}; {excerpt(backend, 200)} lacks {', '.join(missing)}")
