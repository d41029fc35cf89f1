"""What every backend module offers, in this order."""

from collections.abc import Callable
from typing import Any, Protocol

from ..core.typing import Array, Flag, Namespace, Scale, Tree
from ..parsing import excerpt


class Backend(Protocol):
    """
    An array library, as the verbs see it: a module, or any object, with these contents.

    The verbs get arrays that the border has checked, and equal the core's definitions bit for bit; norms within 2 ulp.
    """

    NAME: str  # the backend's name, which is that of the library's top-level module

    def owns(self, array: Any) -> bool:
        """Whether *array* belongs to this library. Arrays of one type get one answer."""

    def namespace(self) -> Namespace:
        """The library's Array API namespace."""

    def devices(self) -> tuple[str, ...]:
        """Where arrays can be put here, as the library writes it."""

    def as_network(self, value: Any) -> Any:
        """*value* as something with `params` and `vjp`; None where it is nothing of this library."""

    def vjp(self, loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """The loss, and what turns a seed into gradients."""

    def scale(self, tree: Tree, scale: Scale) -> Tree:
        """As `core.scaling.scale`."""

    def unscale(self, tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
        """As `core.scaling.unscale`."""

    def all_finite(self, tree: Tree) -> Flag:
        """As `core.overflow.all_finite`."""

    def unscale_and_check(self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
        """As `core.overflow.unscale_and_check`."""

    def unscale_check_and_norm(
        self, tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None
    ) -> tuple[Tree, Flag, Array]:
        """As `core.norms.unscale_check_and_norm`."""

    def global_norm(self, tree: Tree) -> Array:
        """As `core.norms.global_norm`."""

    def local_norms(self, tree: Tree) -> Array:
        """As `core.norms.local_norms`."""

    def clip_by_global_norm(self, tree: Tree, max_norm: float) -> tuple[Tree, Array]:
        """As `core.norms.clip_by_global_norm`."""


CONTENTS = ("NAME", *(name for name in vars(Backend) if not name.startswith("_")))


def check_backend(backend: Any, name: str) -> None:
    """
    *backend*, which is called *name*, offers all that a backend must.

    Raises:
        TypeError: Something is missing, or cannot be called; or its NAME is no str.
    """
    missing = [item for item in CONTENTS if not _offers(backend, item)]
    if missing:
        raise TypeError(
            f"{name} must have NAME, a str, and the functions of a backend; {excerpt(backend, 200)} lacks {', '.join(missing)}"
        )


def _offers(backend: Any, item: str) -> bool:
    value = getattr(backend, item, None)
    return isinstance(value, str) if item == "NAME" else callable(value)
