"""Which library an array belongs to, and the one used where no array is given."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat
import array_api_compat.numpy

from .trees import leaves_with_paths
from .typing import Array, Namespace, Tree

_providers: list[Callable[[], Namespace]] = [lambda: array_api_compat.numpy]


def default_namespace() -> Namespace:
    """The namespace where no array tells it: NumPy's, or what the last provider says."""
    return _providers[-1]()


def provide_default(provider: Callable[[], Namespace]) -> None:
    """From now on *provider* is asked for the default: the floor above knows what the user has chosen."""
    _providers.append(provider)


def namespace_of(tree: Tree) -> Namespace:
    """The namespace of the first array in *tree*; the default where there is none."""
    for _, leaf in leaves_with_paths(tree):
        return array_api_compat.array_namespace(leaf)
    return default_namespace()


def device_of(tree: Tree) -> Any:
    """The device of the first array in *tree*; None, the library's default, where there is none."""
    for _, leaf in leaves_with_paths(tree):
        return array_api_compat.device(leaf)
    return None


def check_one_library(**trees: Tree) -> None:
    """
    All arrays in *trees* come from one library and lie on one device.

    Raises:
        TypeError: They do not; the message names each offender's path, library and device.
    """
    named = [found for name, tree in trees.items() for found in leaves_with_paths(tree, name)]
    if all(array_api_compat.is_numpy_array(leaf) for _, leaf in named):
        return
    homes = [(path, *_home(leaf)) for path, leaf in named]
    libraries, devices = {library for _, library, _ in homes}, {device for _, _, device in homes if device is not None}
    if len(libraries) > 1 or len(devices) > 1:
        listed = "; ".join(f"{path} is {library} on {device or 'no device yet'}" for path, library, device in homes)
        raise TypeError(f"arrays must come from one library and one device, got {listed}")


def quiet(xp: Namespace) -> AbstractContextManager[Any]:
    """NumPy warns where a result is infinite or NaN; here that is data, and the other libraries say nothing."""
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()


def _home(leaf: Array) -> tuple[str, str | None]:
    """The library and the device, by name; None for what JAX traces, which is on no device yet."""
    library, device = array_api_compat.array_namespace(leaf).__name__, array_api_compat.device(leaf)
    return library.removeprefix("array_api_compat."), None if device is None else str(device)
