"""
What a call takes and gives, as JSON and back, by the kinds of methods.py. spec/conformance/protocol.md is for readers.

Whatever is not exactly as the protocol says is a ValueError with what was wanted and what came; nothing is guessed.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Protocol

from ampscale import LossScaleRule

from ..model.adapter import ImplementationInfo
from ..model.arrays import from_bits, is_array, to_bits
from ..model.bits import DIGITS, Bits, tree_from_json, tree_to_json
from .jsonl import cut, refuse, shown, text

PROTOCOL = 1
SAID = ("name", "version", "url", "level", "capabilities", "preset")  # of an ImplementationInfo; bits have no library
LISTS = {"handles": "handle", "arrays": "array or null", "flags": "finite"}  # kinds of which each is many of another
OPAQUE = ("handle", "optimizer", "cell", "adapter")
_DIMENSIONS = 32  # of an array, as of NumPy's before 2.0
LARGEST = 2**53 - 1  # the largest integer that every reader of JSON keeps


class Things(Protocol):
    """What only its maker can read, and is told by a number."""

    def number(self, kind: str, thing: Any) -> int:
        """The number of a thing of this kind, the same for the same thing."""

    def thing(self, kind: str, number: int) -> Any:
        """The thing of this kind and number."""


@dataclass(frozen=True)
class Wire:
    """
    One end of the line.

    Args:
        library: The library of the arrays that are made here: see `ImplementationInfo.arrays`.
        things: The numbers of what is opaque.
    """

    library: str
    things: Things

    def encode(self, kind: str, value: Any) -> Any:
        """
        A value of a kind of methods.py in JSON's words.

        Raises:
            TypeError: It is no such value.
        """
        if kind in LISTS:
            return [self.encode(LISTS[kind], one) for one in _several(value)]
        if kind == "handle and tree":
            handle, tree = _several(value)
            return [self.encode("handle", handle), self.encode("tree", tree)]
        return self.things.number(kind, value) if kind in OPAQUE else _KINDS[kind][0](value)

    def decode(self, kind: str, said: Any) -> Any:
        """
        Back from `encode`.

        Raises:
            ValueError: It is not what the protocol says.
        """
        if kind in LISTS:
            return [self.decode(LISTS[kind], one) for one in list_of(said)]
        if kind == "handle and tree":
            handle, tree = list_of(said) if len(list_of(said)) == 2 else refuse("a handle and a tree", said)
            return self.decode("handle", handle), self.decode("tree", tree)
        return self.things.thing(kind, number_of(said, kind)) if kind in OPAQUE else _KINDS[kind][1](said, self.library)


def pattern(value: float) -> str:
    """The 16 hex digits of a float64, most significant first."""
    return struct.pack(">d", value).hex()


def float_of(said: Any) -> float:
    """Back from `pattern`."""
    if not isinstance(said, str) or len(said) != 16 or set(said) - set("0123456789abcdef"):
        refuse("a float as the 16 hex digits of its float64", said)
    return float(struct.unpack(">d", bytes.fromhex(said))[0])


def number_of(said: Any, kind: str) -> int:
    """The number that a thing is told by."""
    if type(said) is not int or not 0 <= said <= LARGEST:
        refuse(f"the number of {'an' if kind[0] in 'ao' else 'a'} {kind}, an integer from 0 to 2**53 - 1", said)
    return said


def list_of(said: Any) -> list[Any]:
    """A list as it is; else a ValueError."""
    return said if isinstance(said, list) else refuse("a list", said)


def rule_to_json(rule: LossScaleRule) -> dict[str, Any]:
    """A member for each field, its floats as patterns."""
    if not isinstance(rule, LossScaleRule):
        raise TypeError(f"wanted a LossScaleRule, got {rule!r}")
    said = json.loads(rule.to_json())
    return {name: pattern(value) if name in _FLOATS and value is not None else value for name, value in said.items()}


def rule_from_json(said: Any) -> LossScaleRule:
    """Back from `rule_to_json`; what is left out has its default."""
    values = {name: float_of(one) if name in _FLOATS and one is not None else one for name, one in _object(said).items()}
    try:
        return LossScaleRule.from_json(json.dumps(values))
    except TypeError as error:
        raise ValueError(str(error)) from None


def hello_to_json(info: ImplementationInfo) -> dict[str, Any]:
    """The answer to hello."""
    preset = info.preset if isinstance(info.preset, str) else rule_to_json(info.preset)
    said = {name: getattr(info, name) for name in SAID} | {"capabilities": sorted(info.capabilities), "preset": preset}
    return {"protocol": PROTOCOL, "implementation": said}


def hello_from_json(said: Any) -> ImplementationInfo:
    """What an implementation says of itself; its arrays are NumPy's on this side."""
    if set(_object(said)) != {"protocol", "implementation"} or type(said["protocol"]) is not int or said["protocol"] != PROTOCOL:
        refuse(f'{{"protocol": {PROTOCOL}, "implementation": {{...}}}}', said)
    values: dict[str, Any] = dict(_object(said["implementation"]))
    if "name" not in values or set(values) - set(SAID):
        refuse(f"an implementation with a name and none but the members {', '.join(SAID)}", values)
    if isinstance(values.get("preset"), dict):
        values["preset"] = rule_from_json(values["preset"])
    values["capabilities"] = [text(claim) for claim in list_of(values.get("capabilities", []))]
    if type(values.get("level", 0)) is not int:
        refuse("a level from 0 to 4", values["level"])
    values = {name: text(one) if isinstance(one, str) else one for name, one in values.items()}
    try:
        return ImplementationInfo(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


_FLOATS = frozenset(field.name for field in fields(LossScaleRule) if field.type in (float, float | None))


def _object(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else refuse("an object", said)


def _or_null(function: Callable[..., Any], value: Any, *more: Any) -> Any:
    return None if value is None else function(value, *more)


# --- the kinds, written ---


def _write_array(value: Any) -> Any:
    return to_bits(value).to_json()


def _write_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"wanted a bool, got {value!r}")
    return value


def _write_flag(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not is_array(value):
        raise TypeError(f"wanted a bool or a bool array, got {value!r}")
    return _write_array(value)


def _write_tree(tree: Any) -> Any:
    _check_keys(tree)
    return tree_to_json(tree, _write_array)


def _write_named(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TypeError(f"wanted values by their names, got {values!r}")
    return {name: _write_value(value) for name, value in values.items()}


def _write_value(value: Any) -> Any:
    if isinstance(value, float):
        return pattern(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        return [_write_value(one) for one in value]
    return _write_array(value)


def _several(values: Any) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"wanted a list or a tuple, got {values!r}")
    return values


def _check_keys(tree: Any) -> None:
    if isinstance(tree, Mapping) and not all(isinstance(key, str) for key in tree):
        raise TypeError(f"wanted a dict whose keys are strings, got {list(tree)}")
    for child in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list | tuple) else ():
        _check_keys(child)


# --- the kinds, read ---


def _read_bool(said: Any) -> bool:
    return said if isinstance(said, bool) else refuse("true or false", said)


def _read_tree(said: Any, library: str) -> Any:
    return tree_from_json(said, lambda leaf: read_array(leaf, library))


def read_array(said: Any, library: str) -> Any:
    """Exactly as it is to be written: in lower case, with sizes that are sizes and bools that are bools."""
    if not isinstance(said, dict) or set(said) != {"dtype", "shape", "bits"} or said["dtype"] not in list(DIGITS):
        refuse(f"an array as dtype, shape and bits, whose dtype is one of {', '.join(DIGITS)}", said)
    wanted = re.compile("0[01]" if said["dtype"] == "bool" else f"[0-9a-f]{{{DIGITS[said['dtype']]}}}")
    if not all(isinstance(one, str) and wanted.fullmatch(one) for one in list_of(said["bits"])):
        refuse(f"patterns like {wanted.pattern}", said["bits"])
    if len(list_of(said["shape"])) > _DIMENSIONS or not all(type(size) is int and size <= LARGEST for size in said["shape"]):
        refuse(f"at most {_DIMENSIONS} sizes that are integers", said["shape"])
    bits = Bits(said["dtype"], tuple(said["shape"]), tuple(int(one, 16) for one in said["bits"]))
    try:
        return from_bits(bits, library)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"wanted an array, got one of shape {shown(said['shape'])}: {cut(str(error))}") from None


def _read_flag(said: Any, library: str) -> Any:
    return said if isinstance(said, bool) else read_array(said, library)


def _read_named(said: Any, library: str) -> dict[str, Any]:
    return {name: _read_value(one, library) for name, one in _object(said).items()}


def _read_value(said: Any, library: str) -> Any:
    if isinstance(said, str | float):
        return float_of(said)
    if isinstance(said, list):
        return [_read_value(one, library) for one in said]
    return read_array(said, library) if isinstance(said, dict) else said


# Of each kind how a value is written, and read as one of a library's.
_KINDS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any, str], Any]]] = {
    "rule": (rule_to_json, lambda said, _: rule_from_json(said)),
    "finite": (_write_bool, lambda said, _: _read_bool(said)),
    "number": (lambda value: pattern(float(value)), lambda said, _: float_of(said)),
    "tree": (_write_tree, _read_tree),
    "array or null": (partial(_or_null, _write_array), partial(_or_null, read_array)),
    "options": (_write_named, _read_named),
    "outputs": (_write_named, _read_named),
    "flag": (_write_flag, _read_flag),
    "answer": (partial(_or_null, _write_flag), partial(_or_null, _read_flag)),
    "nothing": (lambda _: None, partial(_or_null, lambda said, _: refuse("null", said))),
    "saved": (lambda value: value, lambda said, _: said),
    "hello": (hello_to_json, lambda said, _: hello_from_json(said)),
}
