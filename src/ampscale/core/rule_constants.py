"""
Constants of a loss scaler, validated when they are created.

Spec: MACHINE-defaults, MACHINE-rule-checked, MACHINE-rule-json.
"""

import json
from dataclasses import asdict, dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from math import nan
from typing import Any, Self

from ..parsing import excerpt, parse_json
from .dtypes import FLOATS
from .validation import check_bool, check_count, check_number, check_positive, float_dtype_name

EVENTS = ("finite", "growth", "backoff")  # possible values of `reset_bad_steps_on`


@dataclass(frozen=True)
class RuleConstants:
    """Constants of a loss scaler, as `LossScaleRule` documents them, without the functions that use them."""

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    hysteresis: int = 1
    min_scale: float | None = None
    max_scale: float | None = None
    reset_bad_steps_on: tuple[str, ...] = ("finite", "backoff")
    divide_on_backoff: bool = False
    skip_infinite_growth: bool = True
    initial_good_steps: int = 0
    dtype: str = "float32"
    float64_factor: bool = False
    warmup_growth_factor: float | None = None
    block_at_bounds: bool = False
    overflow_tolerance: float | None = None
    raise_at_min_scale: bool = False
    raise_at_or_below: float | None = None
    delayed_update: bool = False
    _backoff_divisor = nan  # not a field; computed when a rule is created, since torch.compile cannot trace decimal numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", float_dtype_name(self.dtype))
        _check_factors_and_tolerance(self)
        for name in ("growth_interval", "hysteresis"):
            check_count(getattr(self, name), name)
        check_count(self.initial_good_steps, "initial_good_steps", low=1 - 2**31)
        for field in fields(self):
            if field.type is bool:
                check_bool(getattr(self, field.name), field.name)
        _check_reset_bad_steps_on(self.reset_bad_steps_on)
        _check_bounds(self)
        _check_requirements(self)
        object.__setattr__(self, "_backoff_divisor", _reciprocal_host(self.backoff_factor))

    @property
    def backoff_divisor(self) -> float:
        """
        Return the divisor of a backoff if `divide_on_backoff` is True: a number whose reciprocal is `backoff_factor`.

        If several numbers have this reciprocal, return the one with the fewest decimal digits, which the user most likely wrote;
        of those, the nearest to the exact reciprocal of the factor. If no number has it, return `1 / backoff_factor`, from which
        other results can differ: in float64, 1 / (1 / 49) is not 49.
        """
        return self._backoff_divisor

    @property
    def can_raise(self) -> bool:
        """Return True if the published scaler can raise an error: `raise_at_min_scale` or `raise_at_or_below` is set."""
        return self.raise_at_min_scale or self.raise_at_or_below is not None

    def to_json(self) -> str:
        """
        Return the rule as a JSON object with a member for every field. `from_json` restores every number exactly.

        >>> json.loads(RuleConstants(growth_interval=1000).to_json())["growth_interval"]
        1000
        """
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """
        Create a rule from a JSON object. Fields that the object lacks have their defaults.

        Args:
            text: JSON object whose members are fields of the rule.

        Raises:
            TypeError: *text* is neither a str nor bytes, or a value has the wrong type.
            ValueError: *text* is not a JSON object, repeats a key or has an unknown one, or a value is out of range.

        >>> RuleConstants.from_json('{"init_scale": 1024.0}').init_scale
        1024.0
        """
        try:
            values = parse_json(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"a rule must be a JSON object, got {excerpt(text)}: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"a rule must be a JSON object, got {excerpt(text)}")
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(f"the keys of a rule must be among {known}, got {excerpt(unknown)}")
        if isinstance(values.get("reset_bad_steps_on"), list):
            values["reset_bad_steps_on"] = tuple(values["reset_bad_steps_on"])
        return cls(**values)


@lru_cache
def _reciprocal_host(factor: float) -> float:
    """Return the `RuleConstants.backoff_divisor` for *factor*: search decimals of 1 to 16 digits, the nearest first."""
    roundings = (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING)
    decimals = (Context(digits, rounding).divide(1, Decimal(factor)) for digits in range(1, 17) for rounding in roundings)
    return next((number for number in map(float, decimals) if 1 / number == factor), 1 / factor)


def _check_factors_and_tolerance(rule: RuleConstants) -> None:
    smallest, largest = FLOATS[rule.dtype].smallest_normal, FLOATS[rule.dtype].largest
    expected = f"a finite number of at least 1 that {rule.dtype} can hold"
    check_number(rule.growth_factor, "growth_factor", expected, 1, largest)
    if rule.warmup_growth_factor is not None:
        check_number(rule.warmup_growth_factor, "warmup_growth_factor", expected, 1, largest)
    expected = f"a number of at most 1 and at least the smallest normal {rule.dtype}"
    check_number(rule.backoff_factor, "backoff_factor", expected, smallest, 1)
    if rule.overflow_tolerance is not None:
        check_positive(rule.overflow_tolerance, "overflow_tolerance")


def _check_reset_bad_steps_on(events: Any) -> None:
    message = f"reset_bad_steps_on must be a tuple of some of {EVENTS}, got {excerpt(events)}"
    if not isinstance(events, tuple) or not all(isinstance(event, str) for event in events):
        raise TypeError(message)
    if not set(events) <= set(EVENTS):
        raise ValueError(message)


def _check_bounds(rule: RuleConstants) -> None:
    expected = f"a positive, finite number that {rule.dtype} can hold"
    smallest, largest = FLOATS[rule.dtype].smallest_subnormal, FLOATS[rule.dtype].largest
    for name in ("init_scale", "min_scale", "max_scale", "raise_at_or_below"):
        if name == "init_scale" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, expected, smallest, largest)
    if rule.min_scale is not None and rule.init_scale < rule.min_scale:
        raise ValueError(f"init_scale must be at least min_scale {rule.min_scale}, got {rule.init_scale!r}")
    if rule.max_scale is not None and rule.init_scale > rule.max_scale:
        raise ValueError(f"init_scale must be at most max_scale {rule.max_scale}, got {rule.init_scale!r}")


def _check_requirements(rule: RuleConstants) -> None:
    if rule.raise_at_min_scale and rule.min_scale is None:
        raise ValueError("raise_at_min_scale=True requires min_scale, got None")
    if rule.block_at_bounds and rule.min_scale is None and rule.max_scale is None:
        raise ValueError("block_at_bounds=True requires min_scale or max_scale, got None for both")
    if rule.overflow_tolerance is not None and rule.hysteresis != 1:
        raise ValueError(f"overflow_tolerance requires hysteresis=1, got {rule.hysteresis!r}")
