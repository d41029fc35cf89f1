"""
The machine that every published loss scaler is: constants in a rule, state in three arrays, one transition.

    finite step      count it; at the `growth_interval`-th in a row the scale grows and the count starts again
    overflow step    the count starts again; at the `hysteresis`-th overflow the scale backs off

Spec: MACHINE-growth-window, MACHINE-growth-resets, MACHINE-growth-guard, MACHINE-backoff, MACHINE-overflow-resets,
MACHINE-floor, MACHINE-cap, MACHINE-hysteresis, MACHINE-refill, MACHINE-static, MACHINE-pure, MACHINE-wide-factor.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import array_api_compat

from .checks import check_bool, check_count, check_flag, check_number
from .dtypes import FLOATS, name_of
from .namespaces import default_namespace, quiet
from .typing import Array, Flag

REFILLS = ("finite", "growth", "backoff")


class LossScaleState(NamedTuple):
    """
    Where a scaler stands between two steps: arrays of shape (), or of one common shape for a batch of scalers.

    A NamedTuple, so that every tree library flattens it whole.
    """

    scale: Array  # float32 or float64, as the rule says: multiplies the next loss
    good_steps: Array  # int32: finite steps since the last growth or overflow
    bad_steps: Array  # int32: overflows counted towards the next backoff


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
        backoff_divides: Divide by 1/backoff_factor instead. The two differ where the factor is no power of two.
        growth_guard: A growth that would not be finite keeps the scale.
        growth_offset: The count of finite steps at the start and after an overflow; below zero, the first growth is late.
        dtype: "float32" or "float64", in which the scale is held and multiplied.
        wide_factor: Multiply in float64 and round once, so that a factor like 1.1 is not rounded to float32 first. On JAX
            this wants jax_enable_x64.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A value is out of range, or `min_scale <= init_scale <= max_scale` does not hold.
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

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)
        smallest, largest = FLOATS[self.dtype].smallest_normal, FLOATS[self.dtype].largest
        check_number(self.growth_factor, "growth_factor", f"a number of at least 1 that {self.dtype} can hold", 1, largest)
        check_number(
            self.backoff_factor, "backoff_factor", f"a number above 0 and at most 1 that {self.dtype} can hold", smallest, 1
        )
        check_count(self.growth_interval, "growth_interval")
        check_count(self.hysteresis, "hysteresis")
        check_count(self.growth_offset, "growth_offset", low=1 - 2**31)
        check_bool(self.backoff_divides, "backoff_divides")
        check_bool(self.growth_guard, "growth_guard")
        check_bool(self.wide_factor, "wide_factor")
        _check_refill(self.refill)
        _check_bounds(self)

    def init(self, like: Array | None = None) -> LossScaleState:
        """
        The state before the first step.

        Args:
            like: An array whose library and device the state shall have; by default the chosen backend's.

        Returns:
            Three arrays of shape ().

        Raises:
            TypeError: The rule needs float64 and the library gives none: JAX without jax_enable_x64.
        """
        xp = default_namespace() if like is None else array_api_compat.array_namespace(like)
        device = None if like is None else array_api_compat.device(like)
        widest = xp.float64 if self.wide_factor else getattr(xp, self.dtype)
        _check_held(self, name_of(xp.result_type(widest)))
        wide = xp.asarray(self.init_scale, dtype=widest, device=device)
        return LossScaleState(
            scale=xp.astype(wide, getattr(xp, self.dtype), copy=False),
            good_steps=xp.asarray(self.growth_offset, dtype=xp.int32, device=device),
            bad_steps=xp.asarray(0, dtype=xp.int32, device=device),
        )

    def update(self, state: LossScaleState, finite: Flag) -> LossScaleState:
        """
        The state after a step. *state* is left as it is, and nothing is read on the host.

        Args:
            state: The state before the step; arrays of shape (), or of one common shape.
            finite: Bool, of shape () or the state's, or a Python bool: whether the step's gradients were all finite.

        Returns:
            The next state, in the library, on the device and in the dtypes of *state*.

        Raises:
            TypeError: *finite* is no bool.
            ValueError: It has another shape.
        """
        scale, good, bad = state
        check_flag(finite, "finite", shape=tuple(scale.shape))
        xp = array_api_compat.array_namespace(scale)
        finite = xp.full_like(good, finite, dtype=xp.bool) if isinstance(finite, bool) else finite
        grows = finite & (good >= self.growth_interval - 1)
        backs_off = ~finite & (bad >= self.hysteresis - 1)

        with quiet(xp):
            grown, backed_off = self._grown(scale), self._backed_off(scale)
        next_scale = xp.where(grows, grown, xp.where(backs_off, backed_off, scale))

        zero, one = xp.zeros_like(good), xp.ones_like(good)
        next_good = xp.where(finite, xp.where(grows, zero, good + one), xp.full_like(good, self.growth_offset))

        full = xp.full_like(bad, self.hysteresis)
        spent = zero if "backoff" in self.refill else full
        after_finite = zero if "finite" in self.refill else bad
        after_growth = zero if "growth" in self.refill else after_finite
        after_overflow = xp.where(backs_off, spent, bad + one)
        next_bad = xp.where(grows, after_growth, xp.where(finite, after_finite, after_overflow))
        return LossScaleState(next_scale, next_good, next_bad)

    def _grown(self, scale: Array) -> Array:
        xp = array_api_compat.array_namespace(scale)
        grown = self._moved(operator.mul, scale, self.growth_factor)
        if self.growth_guard:
            grown = xp.where(xp.isfinite(grown), grown, scale)
        return grown if self.max_scale is None else xp.minimum(grown, xp.full_like(scale, self.max_scale))

    def _backed_off(self, scale: Array) -> Array:
        xp = array_api_compat.array_namespace(scale)
        if self.backoff_divides:
            backed_off = self._moved(operator.truediv, scale, 1 / self.backoff_factor)
        else:
            backed_off = self._moved(operator.mul, scale, self.backoff_factor)
        return backed_off if self.min_scale is None else xp.maximum(backed_off, xp.full_like(scale, self.min_scale))

    def _moved(self, operation: Callable[[Array, Array], Array], scale: Array, factor: float) -> Array:
        xp = array_api_compat.array_namespace(scale)
        wide = xp.astype(scale, xp.float64) if self.wide_factor else scale
        # A compiler that saw a constant would multiply by its reciprocal instead of dividing, and round twice.
        hidden = xp.where(xp.isnan(wide), wide, xp.full_like(wide, factor))
        return xp.astype(operation(wide, hidden), scale.dtype, copy=False)


def _check_held(rule: LossScaleRule, got: str) -> None:
    wanted = "float64" if rule.wide_factor else rule.dtype
    if got != wanted:
        raise TypeError(f"this rule needs an array library with {wanted}, got {got}; JAX has it with jax_enable_x64")


def _check_refill(refill: Any) -> None:
    if not isinstance(refill, tuple) or not all(isinstance(event, str) for event in refill):
        raise TypeError(f"refill must be a tuple of some of {REFILLS}, got {refill!r}")
    if not set(refill) <= set(REFILLS):
        raise ValueError(f"refill must be a tuple of some of {REFILLS}, got {refill!r}")


def _check_dtype(dtype: Any) -> None:
    if not isinstance(dtype, str):
        raise TypeError(f"dtype must be 'float32' or 'float64', got {dtype!r} of type {type(dtype).__name__}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")


def _check_bounds(rule: LossScaleRule) -> None:
    wanted = f"a positive, finite number that {rule.dtype} can hold"
    smallest, largest = FLOATS[rule.dtype].smallest_subnormal, FLOATS[rule.dtype].largest
    for name in ("init_scale", "min_scale", "max_scale"):
        if name == "init_scale" or getattr(rule, name) is not None:
            check_number(getattr(rule, name), name, wanted, smallest, largest)
    low, high = rule.min_scale or 0.0, math.inf if rule.max_scale is None else rule.max_scale
    if not low <= rule.init_scale <= high:
        raise ValueError(f"init_scale must lie from min_scale {low} to max_scale {high}, got {rule.init_scale!r}")
