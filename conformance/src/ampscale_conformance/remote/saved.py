"""
Saved states as JSON: data alone, so that nothing in one is run by the process that loads it.

Data is None, bools, integers, strings, floats, bytes, arrays, NumPy's scalars, and lists, tuples and dicts of data. Each is of
exactly such a type, since a value of a subclass would come back as something else.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ..model.adapter import ARRAYS
from ..model.arrays import to_bits
from .codec import float_of, list_of, pattern, read_array
from .jsonl import refuse, text


def saved_to_json(value: Any) -> Any:
    """
    Return *value* in JSON; `saved_from_json` reads it.

    Raises:
        TypeError: Some of it is not data.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is list:
        return [saved_to_json(one) for one in value]
    if kind in _PLAIN:
        return {kind.__name__: _PLAIN[kind](value)}
    return {_form_of(value): to_bits(value).to_json()}


def saved_from_json(said: Any, library: str) -> Any:
    """
    Return the value that `saved_to_json` wrote.

    Args:
        said: Its JSON.
        library: The only library beside NumPy of which arrays are created.

    Raises:
        ValueError: `saved_to_json` does not write this.
    """
    if isinstance(said, list):
        return [saved_from_json(one, library) for one in said]
    if not isinstance(said, dict):
        return said
    form, what = next(iter(said.items()), ("", None))
    if len(said) != 1 or form not in (*_FORMS, "numpy", library):
        refuse(f"saved data as an object of one member, {', '.join(_FORMS)}, numpy or {library}", said)
    return _FORMS[form](what, library) if form in _FORMS else read_array(what, form)


def _form_of(value: Any) -> str:
    """Return "scalar", or the library of an array."""
    library = type(value).__module__.partition(".")[0].removesuffix("lib")  # arrays of JAX are jaxlib's
    if library not in ARRAYS:
        raise TypeError(f"what is saved must be data, got an object of type {type(value).__qualname__}")
    return "scalar" if isinstance(value, np.generic) else library


def _pairs(mapping: Any) -> list[Any]:
    return [[saved_to_json(key), saved_to_json(value)] for key, value in mapping.items()]


def _read_pairs(said: Any, library: str) -> list[tuple[Any, Any]]:
    return [(key, value) for key, value in (saved_from_json(list_of(pair), library) for pair in list_of(said))]


_PLAIN: dict[type, Callable[[Any], Any]] = {
    tuple: lambda value: saved_to_json(list(value)),
    dict: _pairs,
    OrderedDict: _pairs,
    float: pattern,
    bytes: bytes.hex,
}
_FORMS: dict[str, Callable[[Any, str], Any]] = {
    "tuple": lambda said, library: tuple(saved_from_json(list_of(said), library)),
    "dict": lambda said, library: dict(_read_pairs(said, library)),
    "OrderedDict": lambda said, library: OrderedDict(_read_pairs(said, library)),
    "float": lambda said, _: float_of(said),
    "bytes": lambda said, _: bytes.fromhex(text(said)),
    "scalar": lambda said, _: read_array(said, "numpy")[()],
}
