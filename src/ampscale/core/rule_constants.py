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

REFILLS = ("finite", "growth", "backoff")


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
    refill: tuple[str, ...] = ("finite", "backoff")
    backoff_divides: bool = False
    growth_guard: bool = True
    growth_offset: int = 0
    dtype: str = "float32"
    wide_factor: bool = False
    first_growth_factor: float | None = None
    gate: bool = False
    rate: float | None = None
    stop_at_floor: bool = False
    stop_below: float | None = None
    lag: bool = False

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)
        _check_factors(self)
        for name in ("growth_interval", "hysteresis"):
            check_count(getattr(self, name), name)
        check_count(self.growth_offset, "growth_offset", low=1 - 2**31)
        for name in ("backoff_divides", "growth_guard", "wide_factor", "gate", "stop_at_floor", "lag"):
            check_bool(getattr(self, name), name)
        _check_refill(self.refill)
        _check_bounds(self)
        _check_company(self)

    @property
    def backoff_divisor(self) -> float:
        """
        What a backoff divides by, with `backoff_divides`: the number whose reciprocal `backoff_factor` is.

        Of several the one with the fewest digits, which is what the scaler was given: 1/(1/49) is not 49 in float64.
        """
        return _inverted_host(self.backoff_factor)

    @property
    def can_stop(self) -> bool:
        """True if the published scaler can raise an error: `stop_at_floor` or `stop_below` is set."""
        return self.stop_at_floor or self.stop_below is not None

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
        if isinstance(values.get("refill"), list):
            values["refill"] = tuple(values["refill"])
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
    for name in ("growth_factor", "first_growth_factor"):
        if name == "growth_factor" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, f"a number of at least 1 that {rule.dtype} can hold", 1, largest)
    wanted = f"a number above 0 and at most 1 that {rule.dtype} can hold"
    check_number(rule.backoff_factor, "backoff_factor", wanted, smallest, 1)
    if rule.rate is not None:
        check_number(rule.rate, "rate", "a number above 0", 0, above=True)


def _check_refill(refill: Any) -> None:
    if not isinstance(refill, tuple) or not all(isinstance(event, str) for event in refill):
        raise TypeError(f"refill must be a tuple of some of {REFILLS}, got {excerpt(refill)}")
    if not set(refill) <= set(REFILLS):
        raise ValueError(f"refill must be a tuple of some of {REFILLS}, got {excerpt(refill)}")


def _check_bounds(rule: RuleConstants) -> None:
    wanted = f"a positive, finite number that {rule.dtype} can hold"
    smallest, largest = FLOATS[rule.dtype].smallest_subnormal, FLOATS[rule.dtype].largest
    for name in ("init_scale", "min_scale", "max_scale", "stop_below"):
        if name == "init_scale" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, wanted, smallest, largest)
    low, high = rule.min_scale or 0.0, math.inf if rule.max_scale is None else rule.max_scale
    if not low <= rule.init_scale <= high:
        raise ValueError(f"init_scale must lie from min_scale {low} to max_scale {high}, got {rule.init_scale!r}")


def _check_company(rule: RuleConstants) -> None:
    if rule.stop_at_floor and rule.min_scale is None:
        raise ValueError("stop_at_floor must be False where there is no min_scale, got True")
    if rule.gate and rule.min_scale is None and rule.max_scale is None:
        raise ValueError("gate must be False where there is neither min_scale nor max_scale, got True")
    if rule.rate is not None and rule.hysteresis != 1:
        raise ValueError(f"hysteresis must be 1 where there is a rate, got {rule.hysteresis!r}")
