"""
Constants of a loss scaler, checked when they are made.

Spec: MACHINE-defaults, MACHINE-rule-checked, MACHINE-rule-json.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Self

from ..parsing import excerpt, parse_json
from .dtypes import FLOATS
from .validation import check_bool, check_count, check_number

EVENTS = ("finite", "growth", "backoff")


@dataclass(frozen=True)
class RuleConstants:
    """Constants of a loss scaler, as `LossScaleRule` describes them: what both forms of the state machine compute with."""

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

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)
        _check_factors(self)
        for name in ("growth_interval", "hysteresis"):
            check_count(getattr(self, name), name)
        check_count(self.initial_good_steps, "initial_good_steps", low=1 - 2**31)
        for name in (
            "divide_on_backoff",
            "skip_infinite_growth",
            "float64_factor",
            "block_at_bounds",
            "raise_at_min_scale",
            "delayed_update",
        ):
            check_bool(getattr(self, name), name)
        _check_reset_bad_steps_on(self.reset_bad_steps_on)
        _check_bounds(self)
        _check_company(self)

    @property
    def backoff_divisor(self) -> float:
        """
        What a backoff divides by, with `divide_on_backoff`: the number whose reciprocal `backoff_factor` is.

        Of several the one with the fewest digits, which is what the scaler was given: 1/(1/49) is not 49 in float64.
        """
        return _inverted_host(self.backoff_factor)

    @property
    def can_raise(self) -> bool:
        """True if the published scaler can raise an error: `raise_at_min_scale` or `raise_at_or_below` is set."""
        return self.raise_at_min_scale or self.raise_at_or_below is not None

    def to_json(self) -> str:
        """The rule as a JSON object, one member for each field. Numbers are written so that they are read back exactly."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """
        The rule that a JSON object says; a field that it leaves out has its default.

        Raises:
            TypeError: *text* is no str, or a value has the wrong type.
            ValueError: It is no JSON object, says a thing twice, has an unknown member, or a value is out of range.
        """
        try:
            values = parse_json(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"a rule must be a JSON object, got {excerpt(text)}: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"a rule must be a JSON object, got {excerpt(text)}")
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(f"a rule must have none but the members {known}, got {excerpt(unknown)}")
        if isinstance(values.get("reset_bad_steps_on"), list):
            values["reset_bad_steps_on"] = tuple(values["reset_bad_steps_on"])
        return cls(**values)


@lru_cache
def _inverted_host(factor: float) -> float:
    shorter = (float(f"{1 / factor:.{digits}g}") for digits in range(1, 18))
    return next((number for number in shorter if 1 / number == factor), 1 / factor)


def _check_dtype(dtype: Any) -> None:
    if not isinstance(dtype, str):
        raise TypeError(f"dtype must be 'float32' or 'float64', got {excerpt(dtype)} of type {type(dtype).__name__}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {excerpt(dtype)}")


def _check_factors(rule: RuleConstants) -> None:
    smallest, largest = FLOATS[rule.dtype].smallest_normal, FLOATS[rule.dtype].largest
    for name in ("growth_factor", "warmup_growth_factor"):
        if name == "growth_factor" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, f"a number of at least 1 that {rule.dtype} can hold", 1, largest)
    wanted = f"a number above 0 and at most 1 that {rule.dtype} can hold"
    check_number(rule.backoff_factor, "backoff_factor", wanted, smallest, 1)
    if rule.overflow_tolerance is not None:
        check_number(rule.overflow_tolerance, "overflow_tolerance", "a number above 0", 0, above=True)


def _check_reset_bad_steps_on(events: Any) -> None:
    if not isinstance(events, tuple) or not all(isinstance(event, str) for event in events):
        raise TypeError(f"reset_bad_steps_on must be a tuple of some of {EVENTS}, got {excerpt(events)}")
    if not set(events) <= set(EVENTS):
        raise ValueError(f"reset_bad_steps_on must be a tuple of some of {EVENTS}, got {excerpt(events)}")


def _check_bounds(rule: RuleConstants) -> None:
    wanted = f"a positive, finite number that {rule.dtype} can hold"
    smallest, largest = FLOATS[rule.dtype].smallest_subnormal, FLOATS[rule.dtype].largest
    for name in ("init_scale", "min_scale", "max_scale", "raise_at_or_below"):
        if name == "init_scale" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, wanted, smallest, largest)
    low, high = rule.min_scale or 0.0, math.inf if rule.max_scale is None else rule.max_scale
    if not low <= rule.init_scale <= high:
        raise ValueError(f"init_scale must lie from min_scale {low} to max_scale {high}, got {rule.init_scale!r}")


def _check_company(rule: RuleConstants) -> None:
    if rule.raise_at_min_scale and rule.min_scale is None:
        raise ValueError("raise_at_min_scale=True requires min_scale, got None")
    if rule.block_at_bounds and rule.min_scale is None and rule.max_scale is None:
        raise ValueError("block_at_bounds=True requires min_scale or max_scale, got None for both")
    if rule.overflow_tolerance is not None and rule.hysteresis != 1:
        raise ValueError(f"overflow_tolerance requires hysteresis=1, got {rule.hysteresis!r}")
