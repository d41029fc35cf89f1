"""Decoding of the values in the vector files, and encoding of scalars."""

from collections.abc import Mapping
from typing import Any

from ampscale_conformance.model.bits import Bits
from ampscale_conformance.model.floats import rounded
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.tensors import array, numbers


def argument(encoded: Any) -> Any:
    """Return the value of an encoded argument, as defined in spec/README.md. A NumPy scalar becomes a Python number."""
    if isinstance(encoded, str):
        return float.fromhex(encoded)
    if isinstance(encoded, list):
        return [argument(item) for item in encoded]
    if not isinstance(encoded, Mapping):
        return encoded
    if "bits" in encoded:
        return Bits.from_json(encoded)
    if "dict" in encoded:
        return {key: argument(item) for key, item in encoded["dict"].items()}
    if "text" in encoded:
        return encoded["text"]
    value = argument(encoded["value"])
    return value if encoded["numpy"] == "int64" else rounded(value, encoded["numpy"])


def arguments(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of encoded arguments, by name."""
    return {name: argument(value) for name, value in encoded.items()}


def rule(encoded: Mapping[str, Any]) -> Constants:
    """Return the constants of an encoded rule, in which `reset_bad_steps_on` and `dtype` are plain strings."""
    strings = {name: encoded[name] for name in ("reset_bad_steps_on", "dtype") if name in encoded}
    if "reset_bad_steps_on" in strings:
        strings["reset_bad_steps_on"] = tuple(strings["reset_bad_steps_on"])
    return Constants(**arguments({name: value for name, value in encoded.items() if name not in strings}), **strings)


def number(encoded: Any) -> float:
    """Return an encoded scale or norm limit, which is a float or an array of one element."""
    value = argument(encoded)
    if isinstance(value, Bits):
        (item,) = numbers(value)
        return float(item)
    return float(value)


def scalar(value: float, dtype: str, shape: tuple[int, ...] = ()) -> Any:
    """Return a number encoded as an array of one element."""
    return array(dtype, value, shape).to_json()
