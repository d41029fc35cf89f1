"""
How a rule is written on the command line, and read.

    torch                                   a preset
    paddle:hysteresis=2,init_scale=2**16    a preset with settings
    rule.json                               a file that `LossScaleRule.to_json` wrote
    'LossScaleRule(init_scale=1024.0)'      a rule as Python prints it
"""

import ast
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from ..core.rule import LossScaleRule
from ..files import read_bounded
from ..parsing import LONGEST_JSON, LONGEST_NUMBER, LONGEST_RULE, check_length, cut, excerpt
from ..presets import PRESETS

MOST = 2000  # the largest exponent: no scale needs more, and a larger one would take for ever
FIELDS = tuple(field.name for field in fields(LossScaleRule))


class Number(click.ParamType):  # type: ignore[type-arg]  # older releases of click take no argument here
    """A number: ``32768``, ``2**15``, ``0x1p15``, ``1e-4``."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that a word says."""
        if isinstance(value, int | float):
            return value
        try:
            return number(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


NUMBER = Number()


def number(word: str) -> float:
    """
    The number that *word* says: a decimal, a power like ``2**15``, or hexadecimal like ``0x1p15``; whole ones are ints.

    Raises:
        ValueError: It says none, or one that no float can hold.
    """
    base, power, exponent = word.strip().partition("**")
    try:
        check_length(word, LONGEST_NUMBER, "a number")
        if abs(_plain(exponent or "1")) > MOST or not math.isfinite(float(_plain(base)) ** _plain(exponent or "1")):
            raise OverflowError
        value = _plain(base) ** _plain(exponent) if power else _plain(base)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):  # a TypeError for a root of a negative number
        raise ValueError(f"a number must be written like 32768, 2**15, 1e-4 or 0x1p15, got {excerpt(word)}") from None
    return value


def read_rule(text: str, settings: Mapping[str, str] | None = None) -> tuple[str, LossScaleRule]:
    """
    The rule that *text* says, and what to call it.

    Args:
        text: A preset with its own settings, a JSON file, or a rule as Python prints it.
        settings: More of them; those that *text* itself has come first.

    Raises:
        click.BadParameter: There is no such preset, file or setting, or a value is wrong.
    """
    name, _, own = text.partition(":")
    try:
        if name in PRESETS:
            return text, _preset(name, {**(settings or {}), **_settings(own)})
        rule = _pasted(text) if text.lstrip().startswith("LossScaleRule(") else _filed(text)
        return _label(text), replace(rule, **{key: value_of(key, word) for key, word in (settings or {}).items()})
    except (TypeError, ValueError, OSError) as error:
        raise click.BadParameter(f"{cut(text)}: {cut(str(error), 1000)}") from None


def read_rules(texts: Sequence[str], settings: Mapping[str, str]) -> dict[str, LossScaleRule]:
    """
    Several rules by what to call them. A setting that a preset does not have is left out there, and that is said.

    Raises:
        click.BadParameter: As `read_rule`; a rule is named twice; or no rule has one of the settings.
    """
    rules: dict[str, LossScaleRule] = {}
    taken: set[str] = set()
    for text in texts:
        preset = PRESETS.get(text.partition(":")[0])
        fitting = {key: word for key, word in settings.items() if preset is None or key in preset.parameters}
        for key in sorted(set(settings) - set(fitting)):
            click.echo(f"{cut(text)} has no {key} to set, and keeps its own", err=True)
        label, rule = read_rule(text, fitting)
        if label in rules:
            raise click.BadParameter(f"each rule must be named once, got {cut(label)} twice")
        rules[label] = rule
        taken |= set(fitting)
    if left := sorted(set(settings) - taken):
        raise click.BadParameter(f"a setting must be one that a rule has, got {left}")
    return rules


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """
    ``("init_scale=2**16", ...)`` as a mapping.

    Raises:
        click.BadParameter: One is not of this form, or sets a field that no rule has.
    """
    try:
        return _settings(",".join(words))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _settings(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals or key.strip() not in FIELDS or key.strip() in found:
            raise ValueError(
                f"a setting must be written once as FIELD=VALUE, its field one of {', '.join(FIELDS)}, got {excerpt(word)}"
            )
        found[key.strip()] = value.strip()
    return found


def _preset(name: str, settings: Mapping[str, str]) -> LossScaleRule:
    """The preset with its own parameters first, and then with whatever else a rule has."""
    preset = PRESETS[name]
    values = {key: value_of(key, word) for key, word in settings.items()}
    rule = preset.rule(**{key: value for key, value in values.items() if key in preset.parameters})
    return replace(rule, **{key: value for key, value in values.items() if key not in preset.parameters})


def value_of(key: str, word: str) -> Any:
    """What *word* means for a field: names joined by + for refill, a dtype, none, true, false, or a number."""
    if key == "reset_bad_steps_on":
        return tuple(filter(None, word.split("+")))
    if key == "dtype":
        return word
    return constant(word)


def constant(word: str) -> Any:
    """What a word means: none, true, false, or a number."""
    plain = {"none": None, "true": True, "false": False}
    return plain[word.lower()] if word.lower() in plain else number(word)


def _pasted(text: str) -> LossScaleRule:
    wanted = "a rule must be pasted as Python prints it: LossScaleRule(init_scale=...)"
    check_length(text, LONGEST_RULE, "a rule")
    try:
        with warnings.catch_warnings(action="ignore"):
            call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or getattr(call.func, "id", None) != "LossScaleRule" or call.args:
            raise ValueError(wanted)
        pairs = [(str(word.arg), ast.literal_eval(word.value)) for word in call.keywords]
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        raise ValueError(wanted) from None
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"each argument of a rule must be written once, got {excerpt([name for name, _ in pairs], 400)}")
    return LossScaleRule(**dict(pairs))


def _filed(text: str) -> LossScaleRule:
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"a rule must be a preset, a JSON file or LossScaleRule(...); presets are {', '.join(PRESETS)}")
    return LossScaleRule.from_json(read_bounded(path, LONGEST_JSON).decode())


def _label(text: str) -> str:
    return "rule" if text.lstrip().startswith("LossScaleRule(") else Path(text).stem


def _plain(word: str) -> float:
    word = word.strip()
    if word.lower().lstrip("+-").startswith("0x"):
        return float.fromhex(word)
    try:
        return int(word)
    except ValueError:
        return float(word)
