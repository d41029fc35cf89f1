"""
Structure-aware mutation of valid inputs: nesting, repetition, truncation, splicing, huge numbers and flipped bits.

Each function takes a `random.Random`, so that equal random seeds give equal inputs. *seeds* are the valid inputs to mutate.
"""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

LONGEST = 1_000_000  # characters
TOKEN = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+|\s+|.", re.DOTALL)
NUMBERS = (
    "0", "-0", "-1", "1", "0.5", "2147483647", "2147483648", "-2147483649", "4294967296", "9007199254740993", "9e15",
    "9000000000000000", "10000000", "1" + "0" * 30, "9" * 400, "9" * 1100, "9" * 5000, "1" * 5000 + ".5", "1e308", "1e309",
    "-1e309", "1e-400", "5e-324", "1.7976931348623157e308", "3.4028235e38", "nan", "NaN", "inf", "-Infinity", "2**16",
    "2**2000", "2**2001", "9**2000", "9" * 300 + "**2000", "-2**0.5", "0**-1", "0x1p16", "0x1p99999", "0x" + "f" * 5000,
    "1_000", "0o17", "1e", "1e1000000000", "--1", "+1", "\u0661", "\u00b2", "\u2167",
)  # fmt: skip
WORDS = (
    "", " ", "\n", "\r", "\r\n", "\t", "\0", ",", ":", ";", ".", "=", "#", "'", '"', '"""', "'''", "\\", "\\u", "\\ud800",
    "\\u0000", "[", "]", "{", "}", "(", ")", "[[", "]]", "<", ">", "|", "*", "**", "\ufeff", "\u2028", "\x85", "\x1c",
    "\U0001f600", "\u202e", "true", "false", "null", "None", "none", "True", "x", "X", "?", "a.b", "__metadata__", "scale",
    "finite", "overflow", "step", "LossScaleRule(", "init_scale", "reset_bad_steps_on", "finite+growth", "torch", "paddle:",
    "a=a", "**{}", "lambda:0", "F32", "BOOL", "shape",
)  # fmt: skip
NESTING = (
    ("[", "]"), ("{", "}"), ('{"a":', "}"), ("(", ")"), ("-", ""), ("not ", ""), ("a.", ""), ('"', '"'), ("[a.", "]"),
    ("{a=", "}"),
)  # fmt: skip


def text(random: Random, seeds: tuple[str, ...]) -> str:
    """Return a mutated text."""
    result = random.choice(seeds)
    for _ in range(_times(random)):
        result = random.choice(_TEXT)(random, result, seeds)[:LONGEST]
    return result


def value(random: Random, seeds: tuple[Any, ...]) -> Any:
    """Return a mutated JSON value."""
    result = random.choice(seeds)
    for _ in range(_times(random)):
        result = _changed(random, result, random.choice(seeds))
    return result


def json_text(random: Random, seeds: tuple[Any, ...]) -> str:
    """Return the text of a mutated JSON value; in about a third of the cases, the text is then mutated, too."""
    encoded = json.dumps(value(random, seeds))[:LONGEST]
    return text(random, (encoded,)) if random.random() < 0.35 else encoded


def data(random: Random, seed: bytes) -> bytes:
    """Return *seed* with some bytes flipped, replaced, removed, repeated or cut off."""
    result = bytearray(seed)
    for _ in range(_times(random)):
        start = random.randrange(len(result) + 1)
        length = random.randrange(1, 9)
        kind = random.randrange(5)
        if kind == 0:
            del result[start:]
        elif kind == 1:
            del result[start : start + length]
        elif kind == 2:
            result[start:start] = result[start : start + 4 * length] * random.choice((1, 2, 50))
        elif kind == 3:
            result[start : start + length] = random.randbytes(length)
        elif start < len(result):
            result[start] ^= 1 << random.randrange(8)
    return bytes(result)


def _times(random: Random) -> int:
    """Return a number of mutations, from 0 to 6."""
    return min(int(random.expovariate(0.7)), 6)


def _many(random: Random) -> int:
    """Return a number of repetitions; it is rarely large."""
    return random.choice((2, 3, 8, 30)) if random.random() < 0.995 else random.choice((99, 101, 999, 3000))


def _split(random: Random, text: str) -> tuple[str, str, str]:
    """Return the text before some tokens in a row, these tokens, at most 40, and the text after them."""
    tokens = TOKEN.findall(text)
    start = random.randrange(len(tokens) + 1)
    end = start + min(int(random.expovariate(0.3)) + 1, 40)
    return "".join(tokens[:start]), "".join(tokens[start:end]), "".join(tokens[end:])


def _without(random: Random, text: str, _: tuple[str, ...]) -> str:
    before, _part, after = _split(random, text)
    return before + after


def _repeated(random: Random, text: str, _: tuple[str, ...]) -> str:
    before, part, after = _split(random, text)
    return before + part * (1 + _many(random)) + after


def _inserted(random: Random, text: str, _: tuple[str, ...]) -> str:
    index = random.randrange(len(text) + 1)
    return text[:index] + random.choice(WORDS) + text[index:]


def _number(random: Random, text: str, _: tuple[str, ...]) -> str:
    spans = [match.span() for match in re.finditer(r"\d+(?:\.\d+)?", text)] or [(len(text), len(text))]
    start, end = random.choice(spans)
    return text[:start] + random.choice(NUMBERS) + text[end:]


def _truncated(random: Random, text: str, _: tuple[str, ...]) -> str:
    return text[: random.randrange(len(text) + 1)]


def _spliced(random: Random, text: str, seeds: tuple[str, ...]) -> str:
    other = random.choice(seeds)
    return text[: random.randrange(len(text) + 1)] + other[random.randrange(len(other) + 1) :]


def _nested(random: Random, text: str, _: tuple[str, ...]) -> str:
    before, after = random.choice(NESTING)
    count = _many(random)
    index = random.randrange(len(text) + 1)
    return text[:index] + before * count + text[index:] + after * random.choice((count, count - 1))


def _flipped(random: Random, text: str, _: tuple[str, ...]) -> str:
    changed = bytearray(text.encode("utf-8", "surrogatepass"))
    if changed:
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return changed.decode("utf-8", "replace")


_TEXT: tuple[Callable[[Random, str, tuple[str, ...]], str], ...] = (
    _without, _repeated, _inserted, _number, _number, _truncated, _spliced, _nested, _flipped,
)  # fmt: skip


def _changed(random: Random, value: Any, other: Any) -> Any:
    """Return *value* with one random change at a random position."""
    if isinstance(value, dict | list) and value and random.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = random.choice(keys)
        copy = value.copy()
        action = random.random()
        if action < 0.1:
            del copy[key]
        elif action < 0.2 and isinstance(copy, dict):
            copy[random.choice((*WORDS, f"{key}x", f"{key}.x"))] = copy.pop(key)
        else:
            copy[key] = _changed(random, copy[key], other)
        return copy
    return _replaced(random, value, other)


def _replaced(random: Random, value: Any, other: Any) -> Any:
    kind = random.randrange(7)
    if kind == 0:
        for _ in range(_many(random) % 500):
            value = [value]
        return value
    if kind == 1:
        return [value] * _many(random)
    if kind == 2:
        return random.choice((None, True, False, [], {}, "", 0, -1, 1, 0.5, 2**31, 2**63, 2**64, 10**300, 1e300, 5e-324))
    if kind == 3:
        return random.choice(NUMBERS)
    if kind == 4:
        return random.choice(WORDS) * _many(random)
    return other if kind == 5 else {random.choice(WORDS): value, random.choice(WORDS): other}
