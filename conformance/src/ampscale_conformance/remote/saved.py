"""
Saved states as JSON. Only plain data is accepted, so that loading a state runs no code.

Data is None, bools, integers, strings, floats, bytes, arrays, NumPy's scalars, and lists, tuples and dicts of data. Subclasses
of these types are rejected, since they would be loaded as another type.
"""

from collections import OrderedDict
from typing import Any

import numpy as np

from ..model.adapter import ARRAYS
from ..model.arrays import to_bits
from .codec import read_array, read_float, read_list, read_text, reject, write_float

_CONTAINERS = {"tuple": tuple, "dict": dict, "OrderedDict": OrderedDict}


def saved_to_json(value: Any) -> Any:
    """Return *value* in JSON; raise a TypeError if it contains anything but data."""
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is list:
        return [saved_to_json(item) for item in value]
    if cls is tuple:
        return {"tuple": saved_to_json(list(value))}
    if cls in (dict, OrderedDict):
        return {cls.__name__: saved_to_json([list(item) for item in value.items()])}
    if cls is float:
        return {"float": write_float(value)}
    if cls is bytes:
        return {"bytes": value.hex()}
    library = cls.__module__.partition(".")[0].removesuffix("lib")  # the module of JAX's arrays is jaxlib
    if library not in ARRAYS:
        raise TypeError(
            f"a saved state must be plain data, got an object of type {cls.__qualname__}; use numbers, arrays, lists and dicts"
        )
    return {"scalar" if isinstance(value, np.generic) else library: to_bits(value).to_json()}


def saved_from_json(encoded: Any, library: str) -> Any:
    """Return the data that `saved_to_json` encoded, with arrays of NumPy and *library*; raise a ValueError if it is invalid."""
    if isinstance(encoded, list):
        return [saved_from_json(item, library) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    form, content = next(iter(encoded.items()), ("", None))
    if len(encoded) != 1 or form not in (*_CONTAINERS, "float", "bytes", "scalar", "numpy", library):
        reject(f"an object with one member of {', '.join(_CONTAINERS)}, float, bytes, scalar, numpy or {library}", encoded)
    if form in _CONTAINERS:
        items = saved_from_json(read_list(content), library)
        try:
            return _CONTAINERS[form](items)
        except (TypeError, ValueError):  # items that are not pairs, or a key that cannot be hashed
            reject(f"the items of a value of type {form}", content)
    if form == "float":
        return read_float(content)
    if form == "bytes":
        return bytes.fromhex(read_text(content))
    return read_array(content, "numpy")[()] if form == "scalar" else read_array(content, form)
