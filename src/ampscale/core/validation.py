"""
Argument validation. Each error message states what was expected and what was passed.

Public functions validate once; nothing below them checks again. Spec: SCALING-scale-rejected, SCALING-mixed-rejected,
OVERFLOW-in-place-checked.
"""

import math
import sys
from typing import Any

import array_api_compat

from ..parsing import excerpt
from .dtypes import FLOATS, INTEGERS, name_of
from .trees import leaves, leaves_with_paths, one_of_each_type
from .type_names import type_name
from .typing import Array, Flag, Scale, Tree


def check_number(value: Any, name: str, wanted: str, low: float, high: float = math.inf, *, above: bool = False) -> None:
    """
    *value* is a finite Python number in [low, high], or in (low, high] with *above*.

    Raises:
        TypeError: It is no int or float, or it is a bool.
        ValueError: It is NaN, infinite or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be {wanted}, got {excerpt(value, 500)} of type {type(value).__name__}")
    if not low <= value <= min(high, sys.float_info.max) or (above and value == low):
        raise ValueError(f"{name} must be {wanted}, got {excerpt(value, 500)}")


def check_count(value: Any, name: str, low: int = 1) -> None:
    """
    *value* is an int that an int32 counter can reach, at least *low*.

    Raises:
        TypeError: It is no int, or it is a bool.
        ValueError: It is out of range.
    """
    wanted = f"an int from {low} to 2**31 - 1"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {wanted}, got {excerpt(value, 500)} of type {type(value).__name__}")
    if not low <= value < 2**31:
        raise ValueError(f"{name} must be {wanted}, got {excerpt(value, 500)}")


def check_methods(value: Any, name: str, *methods: str) -> None:
    """
    *value* has these methods.

    Raises:
        TypeError: It lacks one.
    """
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{name} must have the methods {list(methods)}, got {excerpt(value)} of type {type(value).__name__}")


def check_bool(value: Any, name: str) -> None:
    """
    *value* is a Python bool.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {excerpt(value)} of type {type(value).__name__}")


def check_scale_array(value: Any, name: str) -> None:
    """
    *value* is an array of dtype float32 or float64 and shape () or (1,).

    Raises:
        TypeError: It is no array, or of another dtype: a 16-bit scale could not hold 2**16.
        ValueError: It has another shape.
    """
    if not array_api_compat.is_array_api_obj(value):
        raise TypeError(f"{name} must be an array of shape () or (1,), got {excerpt(value)} of type {type_name(value)}")
    if tuple(value.shape) not in ((), (1,)):
        raise ValueError(f"{name} must have shape () or (1,), got {tuple(value.shape)}")
    if name_of(value.dtype) not in ("float32", "float64"):
        raise TypeError(f"{name} must be float32 or float64, got {name_of(value.dtype)}")


def check_scale_host(value: Scale, name: str = "scale") -> None:
    """
    *value* can be a loss scale: positive, finite, and so in float32.

    The value of an array is looked at only where it lies in the host's memory already, which is NumPy's case.

    Raises:
        TypeError: It is neither a Python number nor a float32 or float64 array.
        ValueError: It is NaN, infinite, zero or negative, or an array whose shape is neither () nor (1,).
    """
    if type(value) not in (int, float) and array_api_compat.is_array_api_obj(value):
        check_scale_array(value, name)
        if not array_api_compat.is_numpy_array(value):
            return
        value = float(value.reshape(()))
    check_scale_number(value, name)


def check_scale_number(value: Any, name: str) -> None:
    """
    *value* is a Python number that a float32 scale can hold: positive and finite there.

    Raises:
        TypeError: It is no int or float, or it is a bool.
        ValueError: It is NaN, infinite, zero or negative, or becomes so in float32.
    """
    wanted = "a positive, finite number that float32 can hold"
    check_number(value, name, wanted, FLOATS["float32"].smallest_subnormal, FLOATS["float32"].largest)


def check_flag(value: Flag, name: str, shape: tuple[int, ...] = ()) -> None:
    """
    *value* is a bool, or an array of bools of shape () or *shape*.

    Raises:
        TypeError: It is neither.
        ValueError: It has another shape.
    """
    if isinstance(value, bool):
        return
    if not array_api_compat.is_array_api_obj(value):
        raise TypeError(f"{name} must be a bool or an array of bools, got {excerpt(value)} of type {type_name(value)}")
    if name_of(value.dtype) != "bool":
        raise TypeError(f"{name} must be a bool or an array of bools, got an array of {name_of(value.dtype)}")
    if tuple(value.shape) not in ((), shape):
        raise ValueError(f"{name} must have shape {shape}, got {tuple(value.shape)}")


def check_loss(value: Any) -> None:
    """
    *value* is what a network must return: one array.

    Raises:
        TypeError: It is not.
    """
    if not array_api_compat.is_array_api_obj(value):
        raise TypeError(f"a network must return one array, its loss, got {type_name(value)}")


def check_scalable(tree: Tree) -> None:
    """
    All arrays in *tree* are floating-point or complex.

    Raises:
        TypeError: One is not; the message names it. An integer divided by a scale would be lost.
    """
    if INTEGERS.isdisjoint(map(name_of, {leaf.dtype for leaf in leaves(tree)})):
        return
    for path, leaf in leaves_with_paths(tree):
        if name_of(leaf.dtype) in INTEGERS:
            raise TypeError(f"{path} must be floating-point or complex to be scaled, got {name_of(leaf.dtype)}")


def check_out(out: Tree, tree: Tree) -> None:
    """
    *out* can take the values of *tree*: the same places, shapes and dtypes, all writable.

    Raises:
        TypeError: A dtype differs, or an array cannot be changed.
        ValueError: A place or a shape differs, or an array is read-only.
    """
    if out is tree and _can_be_written(leaves(tree)):
        return
    wanted, given = leaves_with_paths(tree), leaves_with_paths(out)
    if [path for path, _ in wanted] != [path for path, _ in given]:
        raise ValueError(
            f"out must have the arrays {excerpt([path for path, _ in wanted])}, got {excerpt([path for path, _ in given])}"
        )
    for (path, leaf), (_, target) in zip(wanted, given, strict=True):
        if tuple(leaf.shape) != tuple(target.shape):
            raise ValueError(f"out: {path} must have shape {tuple(leaf.shape)}, got {tuple(target.shape)}")
        if leaf.dtype != target.dtype:
            raise TypeError(f"out: {path} must be {leaf.dtype}, got {target.dtype}")
        check_writable(target, f"out: {path}")


def _can_be_written(arrays: list[Array]) -> bool:
    """Whether all arrays can be. NumPy's are asked one by one; of other libraries' there is one answer for each type."""
    kinds = one_of_each_type(arrays)
    if any(map(array_api_compat.is_numpy_array, kinds)):
        return all(array.flags.writeable for array in arrays)
    return all(map(array_api_compat.is_writeable_array, kinds))


def check_writable(value: Array, name: str) -> None:
    """
    *value* is an array that can be written to.

    Raises:
        TypeError: Its library's arrays cannot be, or it is a NumPy scalar.
        ValueError: It is read-only.
    """
    if array_api_compat.is_writeable_array(value):
        return
    if array_api_compat.is_numpy_array(value) and hasattr(value, "__setitem__"):
        raise ValueError(f"{name} must be writable, got a read-only array")
    raise TypeError(f"{name} must be an array that can be changed, got {type(value).__name__}")
