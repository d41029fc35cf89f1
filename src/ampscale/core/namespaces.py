"""Array API namespaces: of the arrays in a tree, and the default if there are none."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat
import array_api_compat.numpy

from .trees import leaves
from .typing import Namespace, Tree

_providers: list[Callable[[], Namespace]] = [lambda: array_api_compat.numpy]


def default_namespace() -> Namespace:
    """The namespace where no array tells it: NumPy's, or what the last provider says."""
    return _providers[-1]()


def provide_default(provider: Callable[[], Namespace]) -> None:
    """From now on *provider* is asked for the default: the floor above knows what the user has chosen."""
    _providers.append(provider)


def namespace_of(tree: Tree) -> Namespace:
    """The namespace of the first array in *tree*; the default where there is none."""
    arrays = leaves(tree)
    return array_api_compat.array_namespace(arrays[0]) if arrays else default_namespace()


def device_of(tree: Tree) -> Any:
    """The device of the first array in *tree*; None, the library's default, where there is none."""
    arrays = leaves(tree)
    return array_api_compat.device(arrays[0]) if arrays else None


def quiet(xp: Namespace) -> AbstractContextManager[Any]:
    """NumPy warns where a result is infinite or NaN; here that is data, and the other libraries say nothing."""
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()
