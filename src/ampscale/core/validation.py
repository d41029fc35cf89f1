"""
Argument validation. Each function raises a TypeError or a ValueError, whose message states what was expected and what was passed.

Public functions validate their arguments once; internal functions do not repeat the checks.

Spec: SCALING-scale-rejected, SCALING-mixed-rejected, OVERFLOW-in-place-checked.
"""

import math
import sys
from types import FunctionType
from typing import Any

import array_api_compat

from ..parsing import excerpt
from .dtypes import COMPLEX_PARTS, FLOATS, INTEGERS, argument_name, is_scalable, name_of, plain_name
from .trees import is_array, leaves, leaves_with_paths, one_of_each_type
from .type_names import type_name
from .typing import Array, DType, Flag, Scale, Tree

_FLOAT0 = ", JAX's float0, the gradient of an integer or bool; pass only floating-point parameters"
_UNPACK = "; unpack the result of unscale_and_check: gradients, finite = ..."


def check_number(value: Any, name: str, expected: str, low: float, high: float = math.inf, *, above: bool = False) -> None:
    """Check that *value* is a finite Python number, not a bool, in [low, high], or in (low, high] if *above* is True."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be {expected}, got {excerpt(value, 500)} of type {type(value).__name__}")
    if not low <= value <= min(high, sys.float_info.max) or (above and value == low):
        raise ValueError(f"{name} must be {expected}, got {excerpt(value, 500)}")


def check_positive(value: Any, name: str) -> None:
    """Check that *value* is a positive, finite Python number, not a bool."""
    check_number(value, name, "a positive, finite number", 0, above=True)


def check_count(value: Any, name: str, low: int = 1) -> None:
    """Check that *value* is an int, not a bool, in the range of int32, and at least *low*."""
    expected = f"an int from {low} to 2**31 - 1"
    if not isinstance(value, int):
        raise TypeError(f"{name} must be {expected}, got {excerpt(value, 500)} of type {type(value).__name__}")
    check_number(value, name, expected, low, 2**31 - 1)


def check_methods(value: Any, name: str, *methods: str) -> None:
    """Raise a TypeError if *value* lacks one of *methods*, or is a class instead of an object."""
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        alternative = "; use ampscale.optimizers, or a training cell, which accepts torch.optim"
        remedy = alternative if hasattr(value, "param_groups") else _call_first(value)
        actual = f"{excerpt(value)} of type {type(value).__name__}"
        raise TypeError(f"{name} must have the methods {list(methods)}, got {actual}{remedy}")
    if isinstance(value, type):
        raise TypeError(f"{name} must be an object, got the class {value.__name__}: write {value.__name__}()")


def check_bool(value: Any, name: str) -> None:
    """Raise a TypeError if *value* is not a Python bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {excerpt(value)} of type {type(value).__name__}")


def check_type(value: Any, name: str, expected: type, example: str = "") -> None:
    """Raise a TypeError, whose message contains *example*, if *value* is not an instance of *expected*."""
    if not isinstance(value, expected):
        article = "an" if expected.__name__[0] in "AEIOU" else "a"
        such_as = f", such as {example}" if example else ""
        actual = f"{excerpt(value)} of type {type(value).__name__}{_call_first(value)}"
        raise TypeError(f"{name} must be {article} {expected.__name__}{such_as}, got {actual}")


def _call_first(value: Any) -> str:
    """Return the remedy for a function that was passed instead of its result, such as ``optax.adam`` or ``presets.torch``."""
    return f"; call it: {value.__name__}(...)" if isinstance(value, FunctionType) else ""


def float_dtype_name(dtype: DType) -> str:
    """Return the name of *dtype*: float32 or float64, as a dtype or a name. Raise a TypeError or ValueError for any other."""
    name = argument_name(dtype)
    if name in ("float32", "float64"):
        return name
    is_dtype = isinstance(dtype, str) or name in FLOATS or name in COMPLEX_PARTS or name in INTEGERS
    actual = f"{excerpt(dtype)} of type {type(dtype).__name__}"
    error = ValueError if is_dtype else TypeError
    raise error(f"dtype must be float32 or float64, as a dtype or a name, got {actual}")


def result_dtype(dtype: DType | None, out: Tree = None) -> str | None:
    """Return the name of *dtype*, to which narrower results are widened, or None; reject a dtype together with *out*."""
    if dtype is None:
        return None
    name = float_dtype_name(dtype)
    if out is not None:
        raise ValueError(f"dtype must be None if out is given, since out has its own dtypes, got {excerpt(dtype)}")
    return name


def check_scale_array(value: Any, name: str) -> None:
    """Check that *value* is a float32 or float64 array of shape () or (1,); float16 cannot represent a scale of 2**16."""
    if not is_array(value):
        raise TypeError(f"{name} must be an array of shape () or (1,), got {excerpt(value)} of type {type_name(value)}")
    for layout in ("sparse", "mkldnn", "nested"):
        if getattr(value, f"is_{layout}", False):
            raise TypeError(f"{name} must be a dense tensor, got a {layout} one; pass {name}.item()")
    if tuple(value.shape) not in ((), (1,)):
        raise ValueError(f"{name} must have shape () or (1,), got {tuple(value.shape)}")
    if (dtype := plain_name(value.dtype)) not in ("float32", "float64"):
        raise TypeError(f"{name} must be float32 or float64, got {dtype}")


def check_scale_host(value: Scale, name: str = "scale") -> None:
    """
    Check that *value* is a Python number or an array that is a valid loss scale: positive and finite, even in float32.

    The values of arrays other than NumPy's are not read: this could require a host synchronization, or fail during tracing.
    """
    if type(value) not in (int, float) and is_array(value):
        check_scale_array(value, name)
        if not array_api_compat.is_numpy_array(value):
            return
        value = float(value.reshape(()))
    elif not isinstance(value, int | float):
        expected = "a positive, finite number, or a float32 or float64 array of shape () or (1,)"
        remedy = "; pass state.scale" if isinstance(value, tuple) and hasattr(value, "scale") else ""
        raise TypeError(f"{name} must be {expected}, got {excerpt(value)} of type {type(value).__name__}{remedy}")
    check_scale_number(value, name)


def check_scale_number(value: Any, name: str) -> None:
    """Check that *value* is a Python number that is positive and finite, even after rounding to float32."""
    expected = "a positive, finite number that float32 can hold"
    check_number(value, name, expected, FLOATS["float32"].smallest_subnormal, FLOATS["float32"].largest)


def check_flag(value: Flag, name: str, shape: tuple[int, ...] = ()) -> None:
    """Check that *value* is a bool, or a bool array of shape () or *shape*."""
    if isinstance(value, bool):
        return
    if not is_array(value):
        remedy = _UNPACK if isinstance(value, tuple) else ""
        raise TypeError(f"{name} must be a bool or a bool array, got {excerpt(value)} of type {type_name(value)}{remedy}")
    if (dtype := plain_name(value.dtype)) != "bool":
        raise TypeError(f"{name} must be a bool or a bool array, got an array of {dtype}")
    if tuple(value.shape) not in ((), shape):
        expected = f"() or {shape}" if shape else "()"
        raise ValueError(f"{name} must have shape {expected}, got {tuple(value.shape)}")


def check_loss(value: Any) -> None:
    """Raise a TypeError if *value*, the result of a network, is not one array."""
    if not is_array(value):
        remedy = "; return the loss alone, without auxiliary values" if isinstance(value, tuple) else ""
        raise TypeError(f"a network must return its loss as one array, got {type_name(value)}{remedy}")


def check_scalable(tree: Tree, name: str = "tree") -> None:
    """Check that all arrays in *tree* are floating-point or complex: a division by the scale would truncate integers."""
    if all(map(is_scalable, {leaf.dtype for leaf in leaves(tree)})):
        return
    path, leaf = next((path, leaf) for path, leaf in leaves_with_paths(tree, name) if not is_scalable(leaf.dtype))
    dtype = plain_name(leaf.dtype)
    expected = "floating-point or complex" if dtype in INTEGERS else f"one of {', '.join((*FLOATS, *COMPLEX_PARTS))}"
    remedy = _UNPACK if dtype == "bool" and isinstance(tree, tuple) else ""
    remedy = _FLOAT0 if dtype == "void" else remedy
    raise TypeError(f"{path} must be {expected}, got {dtype}{remedy}")


def check_out(out: Tree, tree: Tree) -> None:
    """Check that *out* has a separate writable array for each array of *tree*, of the same path, shape and dtype."""
    if out is tree and _are_writable(leaves(tree)):
        return
    check_alike(out, tree, "out")
    sources: dict[int, Array] = {}  # by the id of an array of *out*: the array of *tree* whose result it receives
    for (path, target), leaf in zip(leaves_with_paths(out, "out"), leaves(tree), strict=True):
        check_writable(target, path)
        if sources.setdefault(id(target), leaf) is not leaf:
            raise ValueError(f"{path} must not be an array that receives another result; pass separate arrays")


def check_alike(value: Tree, like: Tree, name: str) -> None:
    """Check that *value*, which error messages call *name*, has arrays of the same paths, shapes and dtypes as *like*."""
    sources, targets = leaves_with_paths(like, name), leaves_with_paths(value, name)
    expected, actual = [path for path, _ in sources], [path for path, _ in targets]
    if expected != actual:
        raise ValueError(f"{name} must have the arrays {excerpt(expected)}, got {excerpt(actual)}")
    for (path, leaf), (_, target) in zip(sources, targets, strict=True):
        if tuple(leaf.shape) != tuple(target.shape):
            raise ValueError(f"{path} must have shape {tuple(leaf.shape)}, got {tuple(target.shape)}")
        if leaf.dtype != target.dtype:
            raise TypeError(f"{path} must be {leaf.dtype}, got {target.dtype}")


def check_not_traced(array: Array, name: str, owner: str, alternative: str = "ampscale.train_step") -> None:
    """Raise a ValueError if JAX is tracing *array*, which then has no device: *owner* would store it beyond the tracing."""
    if array_api_compat.device(array) is None:
        raise ValueError(f"{name} must not be traced, since {owner} stores its state; under jit, use {alternative}")


def check_gradients(params: Tree, rows: list[tuple[Any, ...]]) -> None:
    """Raise an error unless each gradient, the second item of a row, is None or a float array of its parameter's shape."""
    for index, (param, gradient, *_) in enumerate(rows):
        is_float = is_array(gradient) and name_of(gradient.dtype) in FLOATS
        if gradient is None or (is_float and tuple(gradient.shape) == tuple(param.shape)):
            continue
        path = leaves_with_paths(params, "gradients")[index][0]
        if not is_array(gradient):
            raise TypeError(f"{path} must be an array, got {excerpt(gradient)} of type {type_name(gradient)}")
        if not is_float:
            raise TypeError(f"{path} must have one of the dtypes {list(FLOATS)}, got {name_of(gradient.dtype)}")
        raise ValueError(f"{path} must have shape {tuple(param.shape)}, got {tuple(gradient.shape)}")


def check_writable(value: Array, name: str) -> None:
    """Check that *value* is a writable array; NumPy scalars are not."""
    if array_api_compat.is_writeable_array(value):
        strides = zip(value.shape, value.strides, strict=True) if array_api_compat.is_numpy_array(value) else ()
        if any(size > 1 and not stride for size, stride in strides):
            raise ValueError(f"{name} must have memory for each value, got an expanded array; copy it")
        return
    if array_api_compat.is_numpy_array(value) and hasattr(value, "__setitem__"):
        raise ValueError(f"{name} must be writable, got a read-only array")
    raise TypeError(f"{name} must be a mutable array, got {type(value).__name__}")


def _are_writable(arrays: list[Array]) -> bool:
    """Return True if all arrays are writable. In libraries other than NumPy, this depends only on the type of an array."""
    representatives = one_of_each_type(arrays)
    if any(map(array_api_compat.is_numpy_array, representatives)):
        return all(array.flags.writeable for array in arrays)
    return all(map(array_api_compat.is_writeable_array, representatives))
