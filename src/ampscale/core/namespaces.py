"""Array API namespaces: of the arrays in a tree, which must come from one library, and the default if there are none."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any

import array_api_compat
import array_api_compat.numpy

from .trees import leaves, leaves_with_paths, one_of_each_type
from .typing import Array, Namespace, Tree

NAMED = 8  # arrays of one library and device that an error names

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


def check_one_library(**trees: Tree) -> None:
    """
    All arrays in *trees* come from one library and lie on one device.

    Raises:
        TypeError: They do not; the message names each offender's path, library and device.
    """
    if _one_home([leaf for name, tree in trees.items() for leaf in leaves(tree, name)]):
        return
    named = [found for name, tree in trees.items() for found in leaves_with_paths(tree, name)]
    homes = [(path, *_home(leaf)) for path, leaf in named]
    libraries, devices = {library for _, library, _ in homes}, {device for _, _, device in homes if device is not None}
    if len(libraries) > 1 or len(devices) > 1:
        raise TypeError(f"arrays must come from one library and one device, got {_listed(homes)}")


def quiet(xp: Namespace) -> AbstractContextManager[Any]:
    """NumPy warns where a result is infinite or NaN; here that is data, and the other libraries say nothing."""
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()


def _one_home(arrays: list[Array]) -> bool:
    """Return True if all arrays are of one type and on one device, or NumPy's; False if it takes a closer look."""
    kinds = one_of_each_type(arrays)
    if all(map(array_api_compat.is_numpy_array, kinds)):
        return True
    # What JAX traces has no device to be asked for. Of torch's there may be thousands, and the attribute is ten times quicker.
    device = attrgetter("device") if all(map(array_api_compat.is_torch_array, kinds)) else array_api_compat.device
    homes = list(map(device, arrays))  # CuPy's can be compared, and have no hash
    return len(kinds) == 1 and homes.count(homes[0]) == len(homes)


def _listed(homes: list[tuple[str, str, str | None]]) -> str:
    """Each path with where its array is; of many in one place the first, so that the odd ones can be seen."""
    places: dict[str, list[str]] = {}
    for path, library, device in homes:
        places.setdefault(f"{library} on {device or 'no device yet'}", []).append(path)
    said = []
    for place, paths in places.items():
        said += [f"{path} is {place}" for path in paths[:NAMED]]
        said += [f"{len(paths) - NAMED} more are {place}"] if len(paths) > NAMED else []
    return "; ".join(said)


def _home(leaf: Array) -> tuple[str, str | None]:
    """The library and the device, by name; None for what JAX traces, which is on no device yet."""
    library, device = array_api_compat.array_namespace(leaf).__name__, array_api_compat.device(leaf)
    return library.removeprefix("array_api_compat."), None if device is None else str(device)
