"""
Strict parsing with limits, so that no input exhausts time, memory or the stack.

This module defines most limits. An input that exceeds a limit raises a ValueError, whose message is one sentence.
"""

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

LONGEST_JSON = 2**23  # bytes
LONGEST_TOML = 2**20  # characters
LONGEST_LOG = 2**28  # bytes of a training log or a CSV file; together with MOST_MESSAGES, it limits memory use to about 2 GB
LONGEST_RUN = 2**30  # bytes of a run file
MOST_MESSAGES = 1_000_000  # messages in a training log
LONGEST_ROW = 2**20  # characters of a row of a CSV file
LONGEST_PICKLE = 2**26  # bytes of a pickle in an archive of torch
LONGEST_RULE = 10_000  # characters of a rule on the command line
MOST_ENTRIES = 100_000  # entries of an archive, or tensors in a file
MOST_STEPS = 5_000_000  # steps in a recorded run
LONGEST_NUMBER = 1100  # characters; the exact decimal form of every float64 is shorter
DEEPEST = 100  # levels of nested lists and objects, or parts of a dotted key
LONGEST_PATH = 4_000  # characters of a path within a checkpoint

_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
# Text without brackets: strings, and the characters between strings and brackets.
_NOT_BRACKETS = re.compile(r'(?:[^\[\]{}"]++|"(?:[^"\\]++|\\.)*+"?)++', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(rf"(?<![\d_])[\d_]{{{LONGEST_NUMBER + 1}}}")
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_KEY}[ \t]*+\.[ \t]*+){{{DEEPEST}}}")


def parse_json(text: str | bytes) -> object:
    """
    Return the value of a JSON text.

    Raises:
        TypeError: *text* is neither a str nor bytes.
        ValueError: The text is not JSON in UTF-8, exceeds a limit, repeats a key within an object, or contains NaN, an
            infinity or a float beyond the range of float64.

    >>> parse_json('{"scale": 1024.0}')
    {'scale': 1024.0}
    """
    if not isinstance(text, str | bytes):
        raise TypeError(f"the JSON must be a str or bytes, got {type(text).__name__}")
    data = text.encode() if isinstance(text, str) else text
    check_length(data, LONGEST_JSON, "the JSON")
    decoded = data.decode()
    _check_depth(decoded)
    value = json.loads(decoded, object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=reject_constant)
    if _SURROGATE.search(decoded):  # half of a surrogate pair cannot be printed or written, so encode() raises
        json.dumps(value, ensure_ascii=False).encode()
    return value


def reject_constant(constant: str) -> Any:
    """Reject a NaN or an infinity. Python's JSON parser calls this function as its argument `parse_constant`."""
    raise ValueError(f"each number must be finite, got {constant}")


def json_text(value: object, indent: int | None = None) -> str:
    """
    Return *value* as JSON text; arrays of shape () become numbers, and other arrays lists.

    Raises:
        ValueError: The value cannot be represented in JSON, or it is nested too deeply.
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False, default=_array_as_list)
    except (TypeError, RuntimeError) as error:  # a RecursionError, or an error of torch for a sparse tensor
        raise ValueError(f"the value must be representable in JSON: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """
    Return the tables of a TOML text.

    Raises:
        ValueError: The text is not TOML, or exceeds a limit.

    >>> parse_toml('backend = "jax"')
    {'backend': 'jax'}
    """
    check_length(text, LONGEST_TOML, "the TOML")
    if number := _LONG_NUMBER.search(text):
        raise ValueError(f"each number must have at most {LONGEST_NUMBER} digits, got more: {cut(number[0])}")
    if key := _LONG_KEY.search(text):  # tomllib takes quadratic time in the number of parts
        raise ValueError(f"each key must have at most {DEEPEST} parts separated by dots, got more: {cut(key[0])}")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("the TOML is nested too deeply") from None


def check_length(text: str | bytes, limit: int, name: str) -> None:
    """Raise a ValueError if *text* has more than *limit* characters or bytes."""
    if len(text) > limit:
        unit = "characters" if isinstance(text, str) else "bytes"
        raise ValueError(f"{name} must have at most {limit} {unit}, got {len(text)}")


def excerpt(value: object, limit: int = 80) -> str:
    """
    Return the `repr` of *value* for a message, cut to *limit* characters.

    Members of lists, tuples and dicts beyond the limit are not formatted.

    >>> excerpt([1, "two"]), excerpt("x" * 10**6, 10)
    ("[1, 'two']", "'xxxxxx...")
    """
    text = ""
    for piece in _pieces(value, limit):
        text += piece
        if len(text) > limit:
            break
    return cut(text, limit)


def cut(text: str, limit: int = 80) -> str:
    """Return *text* for a message: cut to *limit* characters, with non-printable characters escaped."""
    short = text if len(text) <= limit else text[: limit - 3] + "..."
    return short if short.isprintable() else repr(short)[1:-1]


def _pieces(value: object, limit: int, levels: int = DEEPEST) -> Iterator[str]:
    """Yield the `repr` of *value* in non-empty pieces; shorten long texts and numbers."""
    if not levels:
        yield "..."
    elif isinstance(value, str | bytes):
        yield repr(value[:limit])
    elif isinstance(value, int) and value.bit_length() > 4 * limit:
        yield f"an int of {value.bit_length()} bits"
    elif type(value) in (list, tuple, dict):
        yield from _members(value, limit, levels - 1)
    else:
        try:
            yield repr(value)
        except Exception:  # noqa: BLE001 - such as that of a JAX array whose buffer was donated
            yield object.__repr__(value)


def _members(container: Any, limit: int, levels: int) -> Iterator[str]:
    """Yield the `repr` of a list, tuple or dict in pieces."""
    opening, closing = _BRACKETS[type(container)]
    yield opening
    for index, member in enumerate(container):
        if index:
            yield ", "
        yield from _pieces(member, limit, levels)
        if opening == "{":
            yield ": "
            yield from _pieces(container[member], limit, levels)
    yield f",{closing}" if opening == "(" and len(container) == 1 else closing


def _check_depth(text: str) -> None:
    """
    Raise a ValueError if lists and objects are nested too deeply; unclosed brackets count too.

    Each round removes the innermost pairs of brackets, so that no recursion is needed.
    """
    brackets = _NOT_BRACKETS.sub("", text).replace("{", "[").replace("}", "]")
    for _ in range(DEEPEST):
        brackets = brackets.replace("[]", "")
    if "[]" in brackets or brackets.count("[") > DEEPEST:
        raise ValueError(f"the JSON is nested too deeply; the limit is {DEEPEST} levels of lists and objects")


def _array_as_list(array: Any) -> Any:
    """Return the value of an array as a number or as nested lists."""
    if not hasattr(array, "tolist"):
        raise TypeError(f"got {excerpt(array)} of type {type(array).__name__}")  # the end of the message of `json_text`
    return array.tolist()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raise a ValueError if a key is repeated."""
    members = dict(pairs)
    if len(members) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"duplicate key in JSON object: {excerpt(key)}")
    return members


def _number(text: str) -> int | float:
    """Return the number that *text* represents. Raise a ValueError if it is too long or beyond the range of float64."""
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"each number must have at most {LONGEST_NUMBER} characters, got {len(text)}: {cut(text)}")
    value = int(text) if text.lstrip("-").isdecimal() else float(text)
    if value in (math.inf, -math.inf):
        raise ValueError(f"each number must be in the range of float64, got {cut(text)}")
    return value
