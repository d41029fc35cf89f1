"""
The constants of a loss scaler: one value, checked when it is made, that says all there is to say about its scale.

Spec: MACHINE-defaults, MACHINE-rule-checked, MACHINE-rule-json.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

from . import machine, machine_host
from .checks import check_bool, check_count, check_number
from .dtypes import FLOATS
from .machine import LossScaleState
from .typing import Array, Flag

REFILLS = ("finite", "growth", "backoff")


@dataclass(frozen=True)
class LossScaleRule:
    """
    The constants of a loss scaler.

    Args:
        init_scale: The first scale; positive and finite.
        growth_factor: Multiplies the scale when it grows; at least 1, and 1 for a scale that never grows.
        backoff_factor: Multiplies the scale when it backs off; in (0, 1].
        growth_interval: Finite steps in a row that make the scale grow.
        hysteresis: Overflows that make it back off.
        min_scale: The scale never backs off below this; None for no bound.
        max_scale: The scale never grows above this; None for no bound.
        refill: What sets the count of overflows to zero, of "finite", "growth" and "backoff". Without "backoff" the
            count stays at `hysteresis`, and each further overflow backs off, until something else refills.
        backoff_divides: Divide by `backoff_divisor` instead. The two differ where the factor is no power of two.
        growth_guard: A growth that would not be finite keeps the scale.
        growth_offset: The count of finite steps at the start and after an overflow; below zero, the first growth is late.
        dtype: "float32" or "float64", in which the scale is held and multiplied.
        wide_factor: Multiply in float64 and round once, so that a factor like 1.1 is not rounded to float32 first. On JAX
            this wants jax_enable_x64.
        first_growth_factor: Multiplies instead of `growth_factor` while no overflow is counted, which with an empty `refill`
            is until the first overflow ever; None for no such beginning.
        gate: The bounds forbid a move from where they are reached, instead of clamping what it leads to. A growth that is
            forbidden keeps on counting, and a backoff that is forbidden leaves the count of finite steps alone.
        rate: Back off when overflows make up this share of the steps since the last growth or backoff, instead of at a count;
            taken in the dtype of the scale. None to count.
        stop_at_floor: The published scaler raises when a backoff is due at `min_scale`; see `stops`.
        stop_below: It raises when an overflow leaves the scale at this or below; None if it does not.
        lag: A change comes into force one step late.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A value is out of range, `min_scale <= init_scale <= max_scale` does not hold, or an axis lacks another.
    """

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

    @cached_property
    def _step(self) -> machine_host.Step:
        return machine_host.step_of(self)

    def __getstate__(self) -> dict[str, Any]:
        """The constants alone: what has been made of them cannot be pickled."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def init(self, like: Array | float | None = None) -> LossScaleState:
        """
        The state before the first step.

        Args:
            like: An array whose library and device the state shall have; by default the chosen backend's. Or a Python float,
                for a state of Python numbers.

        Returns:
            Arrays of shape (), or Python numbers.

        Raises:
            TypeError: The rule needs float64 and the library gives none: JAX without jax_enable_x64.
        """
        return LossScaleState(*machine_host.init_host(self)) if isinstance(like, float) else machine.init(self, like)

    def update(self, state: LossScaleState, finite: Flag) -> LossScaleState:
        """
        The state after a step. *state* is left as it is, and nothing is read on the host.

        Args:
            state: The state before the step; arrays of shape (), or of one common shape; or Python numbers.
            finite: Bool, of shape () or the state's, or a Python bool: whether the step's gradients were all finite.

        Returns:
            The next state, in the library, on the device and in the dtypes of *state*; the same state where it `stops`.

        Raises:
            TypeError: *finite* is no bool.
            ValueError: It has another shape.
        """
        quick = machine_host.update_host(self, state, finite)
        return machine.update(self, state, finite) if quick is None else quick

    def stops(self, state: LossScaleState, finite: Flag) -> Array:
        """
        Whether the published scaler gives up in this step and raises: `stop_at_floor`, `stop_below`.

        Args:
            state: The state before the step; arrays of shape (), or of one common shape; or Python numbers.
            finite: Bool, of shape () or the state's, or a Python bool: whether the step's gradients were all finite.

        Returns:
            Bool, of the state's shape, or a Python bool; False for rules without a stop.

        Raises:
            TypeError: *finite* is no bool.
            ValueError: It has another shape.
        """
        quick = machine_host.stops_host(self, state, finite)
        return machine.stops(self, state, finite) if quick is None else quick

    def to_json(self) -> str:
        """The rule as a JSON object, one member for each field. Numbers are written so that they are read back exactly."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "LossScaleRule":
        """
        The rule that a JSON object says; a field that it leaves out has its default.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: It is no JSON object, says a thing twice, has an unknown member, or a value is out of range.
        """
        try:
            values = json.loads(text, object_pairs_hook=once)
        except json.JSONDecodeError as error:
            raise ValueError(f"a rule must be a JSON object, got {text.strip()[:40]!r}: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"a rule must be a JSON object, got {text.strip()[:40]!r}")
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(f"a rule must have none but the members {known}, got {unknown}")
        if isinstance(values.get("refill"), list):
            values["refill"] = tuple(values["refill"])
        return cls(**values)


@lru_cache
def _inverted_host(factor: float) -> float:
    shorter = (float(f"{1 / factor:.{digits}g}") for digits in range(1, 18))
    return next((number for number in shorter if 1 / number == factor), 1 / factor)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: an object whose names are all different; else a ValueError."""
    values = dict[str, Any]()
    for name, value in pairs:
        if name in values:
            raise ValueError(f"each name must come once in an object, got {name!r} twice")
        values[name] = value
    return values


def _check_dtype(dtype: Any) -> None:
    if not isinstance(dtype, str):
        raise TypeError(f"dtype must be 'float32' or 'float64', got {dtype!r} of type {type(dtype).__name__}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")


def _check_factors(rule: LossScaleRule) -> None:
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
        raise TypeError(f"refill must be a tuple of some of {REFILLS}, got {refill!r}")
    if not set(refill) <= set(REFILLS):
        raise ValueError(f"refill must be a tuple of some of {REFILLS}, got {refill!r}")


def _check_bounds(rule: LossScaleRule) -> None:
    wanted = f"a positive, finite number that {rule.dtype} can hold"
    smallest, largest = FLOATS[rule.dtype].smallest_subnormal, FLOATS[rule.dtype].largest
    for name in ("init_scale", "min_scale", "max_scale", "stop_below"):
        if name == "init_scale" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, wanted, smallest, largest)
    low, high = rule.min_scale or 0.0, math.inf if rule.max_scale is None else rule.max_scale
    if not low <= rule.init_scale <= high:
        raise ValueError(f"init_scale must lie from min_scale {low} to max_scale {high}, got {rule.init_scale!r}")


def _check_company(rule: LossScaleRule) -> None:
    if rule.stop_at_floor and rule.min_scale is None:
        raise ValueError("stop_at_floor must be False where there is no min_scale, got True")
    if rule.gate and rule.min_scale is None and rule.max_scale is None:
        raise ValueError("gate must be False where there is neither min_scale nor max_scale, got True")
    if rule.rate is not None and rule.hysteresis != 1:
        raise ValueError(f"hysteresis must be 1 where there is a rate, got {rule.hysteresis!r}")
