"""
JSON codec: messages, one JSON object per line, and their arguments and results, by the kinds of `METHODS`.

spec/conformance/protocol.md specifies the format. Reading is strict: any deviation raises a ValueError with the expected and the
actual value.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn, Protocol

from ampscale import LossScaleRule
from ampscale.parsing import cut, excerpt, parse_json

from ..model.adapter import LEVELS, ImplementationInfo, Unsupported
from ..model.arrays import from_bits, is_array, to_bits
from ..model.bits import Bits, safe_repr, tree_from_json, tree_to_json

PROTOCOL = 1
LONGEST = 2**22  # bytes of a line; the suite writes shorter lines, and a recording quotes a line in less than LONGEST_JSON bytes
OUTCOMES = ("result", "raised", "unsupported", "absent")
INFO_MEMBERS = ("name", "version", "url", "level", "capabilities", "preset")  # all of ImplementationInfo except arrays
# Kinds of lists, with the kind of their items, and of pairs. Some of them occur only within the kinds of METHODS.
LISTS = {"handles": "handle", "arrays": "array or null", "flags": "finite", "placements": "text"}
LISTS |= {"steps": "step", "step": "gradients", "gradients": "number or null", "ranks": "rank", "rank": "scale and bool"}
PAIRS = {"handle and tree": ("handle", "tree"), "scale and bool": ("number", "finite")}
_OR_NULL = " or null"  # end of a kind whose value can be None
NUMBERED = ("handle", "optimizer", "cell", "adapter")  # opaque kinds that are sent as numbers
_DIMENSIONS = 32  # most dimensions of an array, the limit of NumPy before 2.0
LARGEST = 2**53 - 1  # the largest integer that all JSON parsers preserve
_FLOATS = frozenset(field.name for field in fields(LossScaleRule) if field.type in (float, float | None))


def write_line(message: Mapping[str, Any]) -> bytes:
    """Return one message as a line of ASCII."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line."""
    try:
        message = parse_json(line)
    except UnicodeEncodeError:  # unpaired surrogates, which `read_text` escapes; all else was checked before
        message = json.loads(line)
    except ValueError as error:
        raise ValueError(f"expected a JSON object, got {excerpt(line)}: {error}") from None
    return message if isinstance(message, dict) else reject("a JSON object", message)


def read_reply(line: bytes, number: int) -> tuple[str, Any]:
    """Return the outcome, one of `OUTCOMES`, and its value from the reply to the request with this number."""
    message = read_line(line)
    if type(message.get("id")) is not int or message["id"] != number:
        reject(f"a reply with the id {number}", message)
    outcomes = [name for name in message if name != "id"]
    if len(outcomes) != 1 or outcomes[0] not in OUTCOMES:
        reject(f"an id and one of {', '.join(OUTCOMES)}", message)
    outcome, value = outcomes[0], message[outcomes[0]]
    if outcome == "raised":
        if not isinstance(value, dict) or set(value) != {"type", "message"}:
            reject("the type and the message of an error", value)
        return outcome, {"type": read_text(value["type"]), "message": read_text(value["message"])}
    return outcome, value if outcome == "result" else read_text(value)


def read_text(message: Any) -> str:
    """Return a string with unpaired surrogates escaped, which JSON allows and UTF-8 does not."""
    if not isinstance(message, str):
        reject("a string", message)
    return message.encode("utf-8", "backslashreplace").decode()


def reject(expected: str, actual: Any) -> NoReturn:
    """Raise a ValueError with the expected and the actual value."""
    raise ValueError(f"expected {expected}, got {excerpt(actual)}")


class ObjectTable(Protocol):
    """Numbers of opaque objects."""

    def number(self, kind: str, value: Any) -> int:
        """Return the number of an object of this kind, the same for the same object."""

    def lookup(self, kind: str, number: int) -> Any:
        """Return the object of this kind and number."""


@dataclass(frozen=True)
class Codec:
    """JSON codec of one side of the connection."""

    library: str  # of the arrays that `decode` creates; see `ImplementationInfo.arrays`
    objects: ObjectTable

    def encode(self, kind: str, value: Any) -> Any:
        """Return the JSON form of a value of this kind; raise a TypeError if it is not of this kind."""
        if kind.endswith(_OR_NULL):
            return None if value is None else self.encode(kind.removesuffix(_OR_NULL), value)
        if kind in LISTS:
            return [self.encode(LISTS[kind], item) for item in _check_sequence(value, kind)]
        if kind in PAIRS:
            return [self.encode(part, item) for part, item in zip(PAIRS[kind], _check_sequence(value, kind), strict=True)]
        return self.objects.number(kind, value) if kind in NUMBERED else _CONVERTERS[kind][0](value)

    def decode(self, kind: str, encoded: Any) -> Any:
        """Return the value that `encode` encoded; raise a ValueError if the JSON violates the protocol."""
        if kind.endswith(_OR_NULL):
            return None if encoded is None else self.decode(kind.removesuffix(_OR_NULL), encoded)
        if kind in LISTS:
            return [self.decode(LISTS[kind], item) for item in read_list(encoded)]
        if kind in PAIRS:
            if len(read_list(encoded)) != 2:
                reject(f"a {kind.replace(' and ', ' and a ')}", encoded)
            return tuple(map(self.decode, PAIRS[kind], encoded))
        if kind in NUMBERED:
            return self.objects.lookup(kind, read_number(encoded, kind))
        return _CONVERTERS[kind][1](encoded, self.library)


def write_float(value: float) -> str:
    """Return the 16 hex digits of a float64, most significant first."""
    return struct.pack(">d", value).hex()


def read_float(encoded: Any) -> float:
    """Return the float that `write_float` encoded."""
    if not isinstance(encoded, str) or len(encoded) != 16 or set(encoded) - set("0123456789abcdef"):
        reject("the 16 hex digits of a float64", encoded)
    return float(struct.unpack(">d", bytes.fromhex(encoded))[0])


def read_number(encoded: Any, kind: str) -> int:
    """Return the value if it is the number of an object; raise a ValueError otherwise."""
    if type(encoded) is not int or not 0 <= encoded <= LARGEST:
        reject(f"the number of an object of kind {kind!r}, an integer from 0 to 2**53 - 1", encoded)
    return encoded


def read_list(encoded: Any) -> list[Any]:
    """Return the value if it is a list; raise a ValueError otherwise."""
    return encoded if isinstance(encoded, list) else reject("a list", encoded)


def rule_to_json(rule: LossScaleRule) -> dict[str, Any]:
    """Return a JSON object with a member for each field; floats are hex digits."""
    if not isinstance(rule, LossScaleRule):
        raise TypeError(f"rule must be a LossScaleRule, got {safe_repr(rule)}")
    encoded = json.loads(rule.to_json())
    return {name: write_float(value) if name in _FLOATS and value is not None else value for name, value in encoded.items()}


def rule_from_json(encoded: Any) -> LossScaleRule:
    """Return the rule that `rule_to_json` encoded; missing members have their defaults."""
    values = {name: read_float(item) if name in _FLOATS and item is not None else item for name, item in _object(encoded).items()}
    try:
        return LossScaleRule.from_json(json.dumps(values))
    except TypeError as error:
        raise ValueError(str(error)) from None


def hello_to_json(info: ImplementationInfo) -> dict[str, Any]:
    """Return *info* as the JSON result of the method `hello`."""
    preset = info.preset if isinstance(info.preset, str) else rule_to_json(info.preset)
    encoded = {name: getattr(info, name) for name in INFO_MEMBERS} | {"capabilities": sorted(info.capabilities), "preset": preset}
    return {"protocol": PROTOCOL, "implementation": encoded}


def hello_from_json(encoded: Any) -> ImplementationInfo:
    """Return the description in the result of hello. Its `arrays` is "numpy": the client receives NumPy arrays."""
    members = set(_object(encoded))
    if members != {"protocol", "implementation"} or type(encoded["protocol"]) is not int or encoded["protocol"] != PROTOCOL:
        reject(f'{{"protocol": {PROTOCOL}, "implementation": {{...}}}}', encoded)
    values: dict[str, Any] = dict(_object(encoded["implementation"]))
    if "name" not in values or set(values) - set(INFO_MEMBERS):
        reject(f"an implementation with a name and no members other than {', '.join(INFO_MEMBERS)}", values)
    if isinstance(values.get("preset"), dict):
        values["preset"] = rule_from_json(values["preset"])
    values["capabilities"] = [read_text(claim) for claim in read_list(values.get("capabilities", []))]
    if type(values.get("level", 0)) is not int:
        reject(f"an integer from 0 to {max(LEVELS)} as the level", values["level"])
    values = {name: read_text(item) if isinstance(item, str) else item for name, item in values.items()}
    try:
        return ImplementationInfo(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _read_count(encoded: Any) -> int:
    return encoded if type(encoded) is int and 0 < encoded <= LARGEST else reject("an integer from 1 to 2**53 - 1", encoded)


def _object(encoded: Any) -> dict[str, Any]:
    return encoded if isinstance(encoded, dict) else reject("an object", encoded)


def _write_array(value: Any) -> Any:
    return to_bits(value).to_json()


def _write_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"finite must be a bool, got {safe_repr(value)}")
    return value


def _write_flag(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not is_array(value):
        raise TypeError(f"expected a bool or a bool array, got {safe_repr(value)}")
    return _write_array(value)


def _write_tree(tree: Any) -> Any:
    _check_containers(tree)
    return tree_to_json(tree, _write_array)


def _write_named(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TypeError(f"expected a mapping with string keys, got {safe_repr(values)}")
    return {name: _write_value(value) for name, value in values.items()}


def _write_value(value: Any) -> Any:
    if isinstance(value, float):
        return write_float(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list | tuple):  # here NumPy's float64, which is an array and a float, stays an array
        return [_write_array(item) if is_array(item) else _write_value(item) for item in value]
    return _write_array(value)


def _check_sequence(values: Any, kind: str) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"{kind} must be a list or a tuple, got {safe_repr(values)}")
    return values


def _check_containers(tree: Any) -> None:
    if hasattr(tree, "_fields"):
        raise Unsupported("the protocol has no NamedTuples")
    if isinstance(tree, Mapping) and not all(isinstance(key, str) for key in tree):
        raise TypeError(f"expected a dict with string keys, got {safe_repr(list(tree))}")
    if isinstance(tree, Mapping | list | tuple):
        for child in tree.values() if isinstance(tree, Mapping) else tree:
            _check_containers(child)


def read_array(encoded: Any, library: str) -> Any:
    """Decode an array in canonical form: lower-case digits, integer sizes, and bools of 00 or 01."""
    if not isinstance(encoded, dict) or set(encoded) != {"dtype", "shape", "bits"} or not isinstance(encoded["bits"], list):
        reject("an array with dtype, shape, and bits as a list", encoded)
    shape = read_list(encoded["shape"])
    if len(shape) > _DIMENSIONS or not all(type(size) is int and size <= LARGEST for size in shape):
        reject(f"at most {_DIMENSIONS} integer sizes up to 2**53 - 1", shape)
    try:
        bits = Bits.from_json(encoded)
        if bits.dtype == "bool" and not set(bits.bits) <= {0, 1}:
            raise ValueError(f"the bits of a bool must be 00 or 01, got {excerpt(encoded['bits'])}")
        return from_bits(bits, library)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"expected a valid array: {cut(str(error))}") from None


def _read_named(encoded: Any, library: str) -> dict[str, Any]:
    return {name: _read_value(item, library) for name, item in _object(encoded).items()}


def _read_value(encoded: Any, library: str) -> Any:
    if isinstance(encoded, str | float):
        return read_float(encoded)
    if isinstance(encoded, list):
        return [_read_value(item, library) for item in encoded]
    return read_array(encoded, library) if isinstance(encoded, dict) else encoded


# The encoder and the decoder of each kind; a decoder takes the library of its arrays.
_CONVERTERS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any, str], Any]]] = {
    "rule": (rule_to_json, lambda encoded, _: rule_from_json(encoded)),
    "finite": (_write_bool, lambda encoded, _: encoded if isinstance(encoded, bool) else reject("true or false", encoded)),
    "number": (lambda value: write_float(float(value)), lambda encoded, _: read_float(encoded)),
    "tree": (_write_tree, lambda encoded, library: tree_from_json(encoded, lambda leaf: read_array(leaf, library))),
    "array": (_write_array, read_array),
    "options": (_write_named, _read_named),
    "outputs": (_write_named, _read_named),
    "flag": (_write_flag, lambda encoded, library: encoded if isinstance(encoded, bool) else read_array(encoded, library)),
    "text": (lambda text: text, lambda encoded, _: read_text(encoded)),
    "optimizers": (lambda count: count, lambda encoded, _: _read_count(encoded)),
    "nothing": (lambda _: None, lambda encoded, _: None if encoded is None else reject("null", encoded)),
    "saved": (lambda value: value, lambda encoded, _: encoded),
    "hello": (hello_to_json, lambda encoded, _: hello_from_json(encoded)),
}
