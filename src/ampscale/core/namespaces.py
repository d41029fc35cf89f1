"""Array API namespaces: the namespace of the arrays in a tree, and a default for trees without arrays."""

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat
import array_api_compat.numpy

from .trees import leaves, leaves_with_paths, one_of_each_type
from .typing import Array, Namespace, Tree

MOST_PATHS = 8  # paths per library and device, in an error message

_providers: list[Callable[[], Namespace]] = [lambda: array_api_compat.numpy]
_Operation = Callable[[Array, Array], Array]
_arithmetic: dict[str, tuple[_Operation, _Operation]] = {}  # product and quotient, by name of the namespace
_OPERATORS = operator.mul, operator.truediv


def default_namespace() -> Namespace:
    """Return the namespace for trees without arrays: NumPy's, or the result of the last function passed to `provide_default`."""
    return _providers[-1]()


def provide_default(provider: Callable[[], Namespace]) -> None:
    """Set the function that returns the default namespace. `ampscale.backends` registers the user's choice here."""
    _providers.append(provider)


def provide_arithmetic(namespace: str, multiply: _Operation, divide: _Operation) -> None:
    """Set the functions that `multiply` and `divide` use for the namespace named *namespace*, instead of its operators."""
    _arithmetic[namespace] = multiply, divide


def multiply(left: Array, right: Array) -> Array:
    """Return *left* times *right*, rounded once. Both are float32 or both float64, and their shapes broadcast."""
    return _arithmetic.get(array_api_compat.array_namespace(left).__name__, _OPERATORS)[0](left, right)


def divide(left: Array, right: Array) -> Array:
    """Return *left* divided by *right*, rounded once. Both are float32 or both float64, and their shapes broadcast."""
    return _arithmetic.get(array_api_compat.array_namespace(left).__name__, _OPERATORS)[1](left, right)


def namespace_of(tree: Tree) -> Namespace:
    """Return the namespace of the first array in *tree*, or the default namespace if there is none."""
    arrays = leaves(tree)
    return array_api_compat.array_namespace(arrays[0]) if arrays else default_namespace()


def device_of(tree: Tree) -> Any:
    """
    Return the device for a scalar that is used with the first array in *tree*. None stands for the default device.

    For a JAX array that is distributed over a mesh, return a sharding with a copy on each device of the mesh. Return None if
    *tree* contains no array, or if JAX may move the array to another device, and therefore the scalar too.
    """
    array = next(iter(leaves(tree)), None)
    device = None if array is None else array_api_compat.device(array)
    if device is None or not getattr(array, "committed", True):  # a JAX tracer has no device, and raises for `committed`
        return None
    return device.update(spec=type(device.spec)()) if hasattr(device, "spec") else device


def as_array(value: Any, like: Array, dtype: Any = None) -> Array:
    """Return *value*, an array or Python numbers, in the library and on the device of *like*, and in *dtype* if it is given."""
    return array_api_compat.array_namespace(like).asarray(value, dtype=dtype, device=array_api_compat.device(like))


def check_one_library(**trees: Tree) -> None:
    """
    Raise a TypeError unless all arrays in *trees* come from one library and are on one device.

    The message lists the paths, libraries and devices.
    """
    if _share_location([leaf for name, tree in trees.items() for leaf in leaves(tree, name)]):
        return
    named = [pair for name, tree in trees.items() for pair in leaves_with_paths(tree, name)]
    locations = [(path, *_location(leaf)) for path, leaf in named]
    libraries, devices = {library for _, library, _ in locations}, {device for _, _, device in locations if device is not None}
    if len(libraries) > 1 or len(devices) > 1:
        # The remedy helps if only the state of the scaler, or its scale, is elsewhere.
        state_names = ("scale", "state", "scaler")
        others = {(library, device) for path, library, device in locations if path.partition("[")[0] not in state_names}
        remedy = "; create the state of the scaler with rule.init(like=array)" if len(others) == 1 else ""
        raise TypeError(f"arrays must come from one library and one device, got {_listed(locations)}{remedy}")


def quiet(xp: Namespace) -> AbstractContextManager[Any]:
    """
    Return a context manager that silences NumPy's floating-point warnings.

    Infinities and NaNs are expected in gradients, and other libraries do not warn.
    """
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()


def _share_location(arrays: list[Array]) -> bool:
    """Return True if all arrays are NumPy's, or of one type and on one device. False does not prove that the locations differ."""
    representatives = one_of_each_type(arrays)
    if all(map(array_api_compat.is_numpy_array, representatives)):
        return True
    if len(representatives) > 1:
        return False
    # For thousands of arrays, the attribute `device` is ten times faster than array_api_compat's function. JAX tracers lack it.
    is_torch = array_api_compat.is_torch_array(representatives[0])
    has_device = is_torch or type(representatives[0]).__module__.startswith("cupy")
    get_device = operator.attrgetter("device") if has_device else array_api_compat.device
    devices = list(map(get_device, arrays))  # a list, since CuPy's devices are not hashable
    if devices.count(devices[0]) != len(devices):  # JAX arrays may be distributed over the same devices in several ways
        devices = [getattr(device, "device_set", device) for device in devices]
    return devices.count(devices[0]) == len(devices)


def _listed(locations: list[tuple[str, str, str | None]]) -> str:
    """Return the paths of arrays as text, at most `MOST_PATHS` for each location, so that rare locations are visible."""
    paths_at: dict[str, list[str]] = {}
    for path, library, device in locations:
        paths_at.setdefault(f"{library} on {device or 'no device yet'}", []).append(path)
    parts = []
    for location, paths in paths_at.items():
        parts += [f"{path} from {location}" for path in paths[:MOST_PATHS]]
        if len(paths) > MOST_PATHS:
            parts.append(f"{len(paths) - MOST_PATHS} more from {location}")
    return "; ".join(parts)


def _location(leaf: Array) -> tuple[str, str | None]:
    """Return the names of the library and of the device; the latter is None for a JAX tracer, which is on no device yet."""
    library = array_api_compat.array_namespace(leaf).__name__
    device = array_api_compat.device(leaf)
    return library.removeprefix("array_api_compat."), None if device is None else str(device)
