"""
Rules, settings and numbers as arguments of the command line.

A rule is one of

    torch                                   a preset
    paddle:hysteresis=2,init_scale=2**16    a preset with settings
    rule.json                               a file written with `LossScaleRule.to_json`
    'LossScaleRule(init_scale=1024.0)'      a rule as Python prints it
"""

import ast
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..core.rule import LossScaleRule
from ..files import read_bounded
from ..parsing import LONGEST_JSON, LONGEST_NUMBER, LONGEST_RULE, check_length, cut, excerpt
from ..presets import PRESETS
from .commands import suggestion, usage_errors

LARGEST_EXPONENT = 2000  # float64 needs no larger one, and a power with a huge exponent would take minutes
FIELDS = tuple(field.name for field in fields(LossScaleRule))


class Number(click.ParamType):  # type: ignore[type-arg]  # older releases of click take no argument here
    """Number such as ``32768``, ``2**15``, ``0x1p15`` or ``1e-4``."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return *value* as a number."""
        if isinstance(value, int | float):
            return value
        try:
            return number(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


NUMBER = Number()


def number(text: str) -> float:
    """Parse a number such as 32768, 2**15, 1e-4 or 0x1p15, which float64 must be able to hold. Integers become ints."""
    base, power, exponent = text.strip().partition("**")
    try:
        check_length(text, LONGEST_NUMBER, "a number")
        base_number = _plain(base)
        exponent_number = _plain(exponent) if power else 1
        # Python reads -2**2 as -(2**2), which a base of -2 would not give.
        if (power and base_number < 0) or abs(exponent_number) > LARGEST_EXPONENT:
            raise OverflowError
        if not math.isfinite(float(base_number) ** exponent_number):
            raise OverflowError
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):  # a power can be complex: TypeError
        raise ValueError(f"a number must be written like 32768, 2**15, 1e-4 or 0x1p15, got {excerpt(text)}") from None
    return base_number**exponent_number


def complete_rule(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets that start with *incomplete*; if there are none, let the shell complete a file name."""
    names = [CompletionItem(name) for name in PRESETS if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def read_rule(text: str, settings: Mapping[str, str] = {}) -> tuple[str, LossScaleRule]:
    """Return the name that tables show for a rule, and the rule. Settings in *text* take precedence over *settings*."""
    name, _, own_settings = text.partition(":")
    try:
        if name in PRESETS:
            settings = {**settings, **_settings(own_settings.split(","))}
        values = {key: value_of(key, value) for key, value in settings.items()}
        if name in PRESETS:
            preset = PRESETS[name]
            rule = preset.rule(**{key: values.pop(key) for key in preset.parameters if key in values})
            return text, replace(rule, **values)  # the remaining settings are fields that the preset does not accept
        if text.lstrip().startswith("LossScaleRule("):
            return "rule", replace(_printed_rule(text), **values)
        return Path(text).stem, replace(_rule_file(text), **values)
    except (TypeError, ValueError, OSError) as error:
        raise click.UsageError(f"{cut(text)}: {cut(str(error), 1000)}") from None


def read_rules(texts: Sequence[str], settings: Mapping[str, str]) -> dict[str, LossScaleRule]:
    """
    Return several rules by the names that tables show for them.

    If a preset lacks a parameter in *settings*, a note on stderr names the parameter, and the preset ignores this setting.
    """
    presets = [PRESETS.get(text.partition(":")[0]) for text in texts]
    parameters = [FIELDS if preset is None else preset.parameters for preset in presets]
    if unused := sorted(set(settings).difference(*parameters)):
        raise click.UsageError(f"--set must name a parameter of at least one rule, got {', '.join(unused)}")
    rules = dict[str, LossScaleRule]()
    for text, names in zip(texts, parameters, strict=True):
        applicable = {key: value for key, value in settings.items() if key in names}
        for key in sorted(set(settings) - set(applicable)):
            click.echo(f"{cut(text)} has no parameter {key}; the setting is ignored", err=True)
        label, rule = read_rule(text, applicable)
        if label in rules:
            remedy = "a rule in a JSON file is named after the file"
            raise click.UsageError(f"the rules must have different names, got {cut(label)} twice; {remedy}")
        rules[label] = rule
    return rules


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse settings such as ``("init_scale=2**16,hysteresis=2", "min_scale=1")`` into a mapping. The values remain text."""
    with usage_errors():
        return _settings(",".join(texts).split(","))


def _settings(texts: Sequence[str]) -> dict[str, str]:
    settings = assignments(filter(None, texts), "FIELD=VALUE")
    for field in settings:
        if field not in FIELDS:
            remedy = suggestion(field, FIELDS, f"fields are {', '.join(FIELDS)}")
            raise ValueError(f"a rule has no field {excerpt(field)}; {remedy}")
    return settings


def assignments(texts: Iterable[str], form: str) -> dict[str, str]:
    """Parse texts such as "period=500" into a mapping. Errors state the expected *form*, such as "KEY=VALUE"."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key in values:
            raise ValueError(f"a setting must be given once as {form}, got {excerpt(text)}")
        values[key] = value
    return values


def value_of(key: str, text: str) -> Any:
    """Parse the value of the field *key*: events joined by "+" for `reset_bad_steps_on`, a dtype, or a constant."""
    if key == "reset_bad_steps_on":
        return tuple(filter(None, text.split("+")))
    return text if key == "dtype" else constant(text)


def constant(text: str) -> Any:
    """Parse "none", "true", "false" or a number."""
    constants = {"none": None, "true": True, "false": False}
    return constants[text.lower()] if text.lower() in constants else number(text)


def _printed_rule(text: str) -> LossScaleRule:
    expected = "a rule must be written as Python prints it: LossScaleRule(init_scale=...)"
    check_length(text, LONGEST_RULE, "a rule")
    try:
        with warnings.catch_warnings(action="ignore"):
            call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or getattr(call.func, "id", None) != "LossScaleRule" or call.args:
            raise ValueError(expected)
        pairs = [(str(keyword.arg), ast.literal_eval(keyword.value)) for keyword in call.keywords]
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        raise ValueError(expected) from None
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"each argument of a rule must be given once, got {excerpt([name for name, _ in pairs], 400)}")
    return LossScaleRule(**dict(pairs))


def _rule_file(text: str) -> LossScaleRule:
    path = Path(text)
    if not path.is_file() and path.suffix != ".json":
        remedy = suggestion(text.partition(":")[0], PRESETS, "ampscale presets lists the presets")
        raise ValueError(f"a rule must be a preset, a JSON file or LossScaleRule(...); {remedy}")
    return LossScaleRule.from_json(read_bounded(path, LONGEST_JSON).decode())


def _plain(text: str) -> float:
    """Parse a number without ``**``: 32768 as an int, and 1e-4 or 0x1p15 as a float."""
    text = text.strip()
    if text.lower().lstrip("+-").startswith("0x"):
        return float.fromhex(text)
    try:
        return int(text)
    except ValueError:
        return float(text)
