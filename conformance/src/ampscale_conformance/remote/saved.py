"""
Saved states as JSON: data alone, so that nothing in one is run by the process that loads it.

Data is None, bools, integers, strings, floats, bytes, arrays, NumPy's scalars, and lists, tuples and dicts of data. Each is of
exactly such a type, since a value of a subclass would come back as something else.
"""

from collections import OrderedDict
from typing import Any

import numpy as np

from ..model.adapter import ARRAYS
from ..model.arrays import to_bits
from .codec import float_of, list_of, pattern, read_array
from .jsonl import refuse, text

_CONTAINERS = {kind.__name__: kind for kind in (tuple, dict, OrderedDict)}


def saved_to_json(value: Any) -> Any:
    """Return *value* in JSON, which `saved_from_json` reads; a TypeError if some of it is not data."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is list:
        return [saved_to_json(one) for one in value]
    if kind in _CONTAINERS.values():
        return {kind.__name__: saved_to_json([*value] if kind is tuple else [[*item] for item in value.items()])}
    if kind in (float, bytes):
        return {kind.__name__: pattern(value) if kind is float else value.hex()}
    library = kind.__module__.partition(".")[0].removesuffix("lib")  # arrays of JAX are jaxlib's
    if library not in ARRAYS:
        raise TypeError(f"what is saved must be data, got an object of type {kind.__qualname__}")
    return {"scalar" if isinstance(value, np.generic) else library: to_bits(value).to_json()}


def saved_from_json(said: Any, library: str) -> Any:
    """Return what `saved_to_json` wrote, with arrays of NumPy and of this library; a ValueError if it does not write this."""
    if isinstance(said, list):
        return [saved_from_json(one, library) for one in said]
    if not isinstance(said, dict):
        return said
    form, what = next(iter(said.items()), ("", None))
    if len(said) != 1 or form not in (*_CONTAINERS, "float", "bytes", "scalar", "numpy", library):
        refuse(f"saved data: {', '.join(_CONTAINERS)}, float, bytes, scalar, numpy or {library}", said)
    if form in _CONTAINERS:
        return _CONTAINERS[form](saved_from_json(list_of(what), library))
    if form in ("float", "bytes"):
        return float_of(what) if form == "float" else bytes.fromhex(text(what))
    return read_array(what, "numpy")[()] if form == "scalar" else read_array(what, form)
