"""What stands in a file of vectors: numbers from their hex form, arguments from theirs, and back."""

from collections.abc import Mapping
from typing import Any

from ampscale_conformance.model.bits import Bits
from ampscale_conformance.model.floats import rounded
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.tensors import array, numbers


def argument(said: Any) -> Any:
    """What stands for an argument: see "A vector" in spec/README.md. A NumPy scalar is the Python number that it holds."""
    if isinstance(said, str):
        return float.fromhex(said)
    if isinstance(said, list):
        return [argument(item) for item in said]
    if not isinstance(said, Mapping):
        return said
    if "bits" in said:
        return Bits.from_json(said)
    if "dict" in said:
        return {key: argument(item) for key, item in said["dict"].items()}
    if "text" in said:
        return said["text"]
    value = argument(said["value"])
    return value if said["numpy"] == "int64" else rounded(value, said["numpy"])


def arguments(said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names."""
    return {name: argument(value) for name, value in said.items()}


def rule(said: Mapping[str, Any]) -> Constants:
    """A rule, whose `reset_bad_steps_on` and `dtype` are plain words."""
    words = {name: said[name] for name in ("reset_bad_steps_on", "dtype") if name in said}
    if "reset_bad_steps_on" in words:
        words["reset_bad_steps_on"] = tuple(words["reset_bad_steps_on"])
    return Constants(**arguments({name: value for name, value in said.items() if name not in words}), **words)


def number(said: Any) -> float:
    """A scale or a limit: a float, or an array of one element."""
    value = argument(said)
    if isinstance(value, Bits):
        (only,) = numbers(value)
        return float(only)
    return float(value)


def flags(said: str) -> list[bool]:
    """One sign a step: + finite, - overflow."""
    return [sign == "+" for sign in said]


def scalar(value: float, dtype: str, shape: tuple[int, ...] = ()) -> Any:
    """A number as an array of one element."""
    return array(dtype, value, shape).to_json()
