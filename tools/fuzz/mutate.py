"""
Structure-aware mutation: valid inputs are nested, repeated, truncated and spliced, with huge numbers and flipped bits.

Every function takes a `random.Random`, so that the same seed makes the same inputs.
"""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

LONGEST = 1_000_000  # characters of an input
TOKEN = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+|\s+|.", re.DOTALL)
NUMBERS = (
    *("0", "-0", "-1", "1", "0.5", "2147483647", "2147483648", "-2147483649", "4294967296", "9007199254740993"),
    *("9e15", "9000000000000000", "10000000", "1" + "0" * 30, "9" * 400, "9" * 1100, "9" * 5000, "1" * 5000 + ".5"),
    *("1e308", "1e309", "-1e309", "1e-400", "5e-324", "1.7976931348623157e308", "3.4028235e38", "nan", "NaN", "inf", "-Infinity"),
    *(
        "2**16",
        "2**2000",
        "2**2001",
        "9**2000",
        "9" * 300 + "**2000",
        "-2**0.5",
        "0**-1",
        "0x1p16",
        "0x1p99999",
        "0x" + "f" * 5000,
    ),
    *("1_000", "0o17", "1e", "1e1000000000", "--1", "+1", "\u0661", "\u00b2", "\u2167"),
)
WORDS = (
    *(
        "",
        " ",
        "\n",
        "\r",
        "\r\n",
        "\t",
        "\0",
        ",",
        ":",
        ";",
        ".",
        "=",
        "#",
        "'",
        '"',
        '"""',
        "'''",
        "\\",
        "\\u",
        "\\ud800",
        "\\u0000",
    ),
    *(
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "[[",
        "]]",
        "<",
        ">",
        "|",
        "*",
        "**",
        "\ufeff",
        "\u2028",
        "\x85",
        "\x1c",
        "\U0001f600",
        "\u202e",
    ),
    *(
        "true",
        "false",
        "null",
        "None",
        "none",
        "True",
        "x",
        "X",
        "?",
        "a.b",
        "__metadata__",
        "scale",
        "finite",
        "overflow",
        "step",
    ),
    *(
        "LossScaleRule(",
        "init_scale",
        "reset_bad_steps_on",
        "finite+growth",
        "torch",
        "paddle:",
        "a=a",
        "**{}",
        "lambda:0",
        "F32",
        "BOOL",
        "shape",
    ),
)
OPEN = (
    ("[", "]"),
    ("{", "}"),
    ('{"a":', "}"),
    ("(", ")"),
    ("-", ""),
    ("not ", ""),
    ("a.", ""),
    ('"', '"'),
    ("[a.", "]"),
    ("{a=", "}"),
)


def text(random: Random, seeds: tuple[str, ...]) -> str:
    """Return a mutated text."""
    found = random.choice(seeds)
    for _ in range(_times(random)):
        found = random.choice(_TEXT)(random, found, seeds)[:LONGEST]
    return found


def value(random: Random, seeds: tuple[Any, ...]) -> Any:
    """Return a mutated value of JSON."""
    found = random.choice(seeds)
    for _ in range(_times(random)):
        found = _changed(random, found, random.choice(seeds))
    return found


def json_text(random: Random, seeds: tuple[Any, ...]) -> str:
    """Return the text of a mutated value, one time in three with a mutation of the text."""
    found = json.dumps(value(random, seeds))[:LONGEST]
    return text(random, (found,)) if random.random() < 0.35 else found


def data(random: Random, seed: bytes) -> bytes:
    """Return bytes with some of them flipped, removed, repeated or cut off."""
    found = bytearray(seed)
    for _ in range(_times(random)):
        start, length = random.randrange(len(found) + 1), random.randrange(1, 9)
        kind = random.randrange(5)
        if kind == 0:
            del found[start:]
        elif kind == 1:
            del found[start : start + length]
        elif kind == 2:
            found[start:start] = found[start : start + 4 * length] * random.choice((1, 2, 50))
        elif kind == 3:
            found[start : start + length] = random.randbytes(length)
        elif start < len(found):
            found[start] ^= 1 << random.randrange(8)
    return bytes(found)


def _times(random: Random) -> int:
    return min(int(random.expovariate(0.7)), 6)


def _many(random: Random) -> int:
    """Return a number of repetitions, which is rarely a large one."""
    return random.choice((2, 3, 8, 30)) if random.random() < 0.995 else random.choice((99, 101, 999, 3000))


def _span(random: Random, tokens: list[str]) -> tuple[int, int]:
    start = random.randrange(len(tokens) + 1)
    return start, start + min(int(random.expovariate(0.3)) + 1, 40)


def _without(random: Random, found: str, _: tuple[str, ...]) -> str:
    tokens = TOKEN.findall(found)
    start, end = _span(random, tokens)
    return "".join(tokens[:start] + tokens[end:])


def _repeated(random: Random, found: str, _: tuple[str, ...]) -> str:
    tokens = TOKEN.findall(found)
    start, end = _span(random, tokens)
    return "".join(tokens[:end] + tokens[start:end] * _many(random) + tokens[end:])


def _inserted(random: Random, found: str, _: tuple[str, ...]) -> str:
    place = random.randrange(len(found) + 1)
    return found[:place] + random.choice(WORDS) + found[place:]


def _number(random: Random, found: str, _: tuple[str, ...]) -> str:
    places = [match.span() for match in re.finditer(r"\d+(?:\.\d+)?", found)] or [(len(found), len(found))]
    start, end = random.choice(places)
    return found[:start] + random.choice(NUMBERS) + found[end:]


def _truncated(random: Random, found: str, _: tuple[str, ...]) -> str:
    return found[: random.randrange(len(found) + 1)]


def _spliced(random: Random, found: str, seeds: tuple[str, ...]) -> str:
    other = random.choice(seeds)
    return found[: random.randrange(len(found) + 1)] + other[random.randrange(len(other) + 1) :]


def _nested(random: Random, found: str, _: tuple[str, ...]) -> str:
    (before, after), many, place = random.choice(OPEN), _many(random), random.randrange(len(found) + 1)
    return found[:place] + before * many + found[place:] + after * random.choice((many, many - 1))


def _flipped(random: Random, found: str, _: tuple[str, ...]) -> str:
    changed = bytearray(found.encode("utf-8", "surrogatepass"))
    if changed:
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return changed.decode("utf-8", "replace")


_TEXT: tuple[Callable[[Random, str, tuple[str, ...]], str], ...] = (
    _without, _repeated, _inserted, _number, _number, _truncated, _spliced, _nested, _flipped,
)  # fmt: skip


def _changed(random: Random, found: Any, other: Any) -> Any:
    """Return *found* with one change at a random place."""
    if isinstance(found, dict | list) and found and random.random() < 0.8:
        keys = list(found) if isinstance(found, dict) else list(range(len(found)))
        key, copy = random.choice(keys), found.copy()
        action = random.random()
        if action < 0.1:
            del copy[key]
        elif action < 0.2 and isinstance(copy, dict):
            copy[random.choice((*WORDS, f"{key}x", f"{key}.x"))] = copy.pop(key)
        else:
            copy[key] = _changed(random, copy[key], other)
        return copy
    return _replaced(random, found, other)


def _replaced(random: Random, found: Any, other: Any) -> Any:
    kind = random.randrange(7)
    if kind == 0:
        for _ in range(_many(random) % 500):
            found = [found]
        return found
    if kind == 1:
        return [found] * _many(random)
    if kind == 2:
        return random.choice((None, True, False, [], {}, "", 0, -1, 1, 0.5, 2**31, 2**63, 2**64, 10**300, 1e300, 5e-324))
    if kind == 3:
        return random.choice(NUMBERS)
    if kind == 4:
        return random.choice(WORDS) * _many(random)
    return other if kind == 5 else {random.choice(WORDS): found, random.choice(WORDS): other}
