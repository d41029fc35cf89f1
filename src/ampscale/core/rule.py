"""
Rule of a loss scaler: its constants, with the functions that make and update its state.

Spec: MACHINE-pure, MACHINE-stop.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from . import machine, machine_floats
from .machine import LossScaleState
from .rule_constants import RuleConstants
from .typing import Array, Flag


@dataclass(frozen=True)
class LossScaleRule(RuleConstants):
    """
    The constants of a loss scaler. Immutable, as its states are: any threads may share both.

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
            such a factor requires jax_enable_x64; one that float32 can hold, like 2 or 0.75, does not.
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

    @cached_property
    def _step(self) -> machine_floats.Step:
        return machine_floats.step_of(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the constants alone: the prepared step is a closure, which cannot be pickled."""
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
            TypeError: The rule requires float64, by its dtype or a wide factor that float32 cannot hold, and the library has
                none: JAX without jax_enable_x64.
        """
        return LossScaleState(*machine_floats.init_host(self)) if isinstance(like, float) else machine.init(self, like)

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
        return self._transition(state, finite)[0]

    def stops(self, state: LossScaleState, finite: Flag) -> Flag:
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
        return self.transition(state, finite)[1]

    def transition(self, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, Flag]:
        """
        Compute what `update` and `stops` return in one pass.

        Args:
            state: The state before the step; arrays of shape (), or of one common shape; or Python numbers.
            finite: Bool, of shape () or the state's, or a Python bool: whether the step's gradients were all finite.

        Returns:
            The next state, and a bool of the state's shape, or a Python bool.

        Raises:
            TypeError: *finite* is no bool.
            ValueError: It has another shape.

        Spec: MACHINE-pure, MACHINE-stop.

        >>> rule = LossScaleRule(init_scale=2.0, min_scale=1.0, stop_at_floor=True)
        >>> state, stops = rule.transition(rule.init(like=0.0), False)
        >>> state.scale, stops, rule.transition(state, False)[1]
        (1.0, False, True)
        """
        after, stops = self._transition(state, finite)
        return after, machine_floats.flag_beside(state.scale, stops)

    def _transition(self, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, Flag]:
        try:
            if machine_floats.takes_host(self, state, finite):
                return machine_floats.transition_host(self._step, state, finite)
            return machine.transition(self, state, finite)
        except (AttributeError, TypeError):
            # Check the types of a state only after a failure: in every step it would take time.
            machine.check_state(state)
            raise
