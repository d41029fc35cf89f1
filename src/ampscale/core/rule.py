"""
Constants of a loss scaler together with the functions that create and update its state.

Spec: MACHINE-pure, MACHINE-would-raise.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ..parsing import excerpt
from . import machine, machine_floats
from .machine import LossScaleState
from .rule_constants import RuleConstants
from .trees import is_array
from .typing import Array, Flag


@dataclass(frozen=True, repr=False)
class LossScaleRule(RuleConstants):
    """
    Constants of a loss scaler. Immutable; `init` creates a `LossScaleState` and `update` computes the next one.

    Any number of threads may share a rule and its states.

    Args:
        init_scale: Initial scale; positive and finite.
        growth_factor: Factor applied when the scale grows; at least 1. With 1, a growth does not change the scale.
        backoff_factor: Factor applied when the scale backs off; in (0, 1].
        growth_interval: Number of consecutive finite steps after which the scale grows.
        hysteresis: Number of counted overflows at which the scale backs off.
        min_scale: Lower bound of a backoff; None for no bound.
        max_scale: Upper bound of a growth; None for no bound.
        reset_bad_steps_on: Events that reset the overflow count: any of "finite", "growth" and "backoff". Without
            "backoff", every overflow from the `hysteresis`-th on backs off, until another event resets the count.
        divide_on_backoff: Divide by `backoff_divisor` instead of multiplying by `backoff_factor`. The results can differ
            unless the factor is a power of two.
        skip_infinite_growth: Keep the scale if a growth would make it non-finite.
        initial_good_steps: Value of `good_steps` at the start and after an overflow; a negative value delays the next
            growth.
        dtype: Dtype of the scale, float32 or float64, as a dtype or a name. The rule stores the name.
        float64_factor: Apply the factor in float64 and round once, so that a factor such as 1.1 is not rounded to float32
            first. On JAX such a factor requires jax_enable_x64; a factor that float32 represents exactly does not.
        warmup_growth_factor: Replaces `growth_factor` while the overflow count is zero; None for no replacement. With an
            empty `reset_bad_steps_on`, the count is zero until the first overflow.
        block_at_bounds: Block growths at or above `max_scale` and backoffs at or below `min_scale`, instead of clamping
            their results. A blocked growth still increments `good_steps`; a blocked backoff leaves `good_steps` unchanged.
        overflow_tolerance: Back off when overflows reach this share of the steps since the last growth or due backoff
            (blocked or not), computed in the dtype of the scale; None to count overflows instead.
        raise_at_min_scale: The published scaler raises an error when a backoff is due at `min_scale`; see `would_raise`.
        raise_at_or_below: The published scaler raises an error when an overflow leaves the scale at or below this value;
            None if it raises no such error.
        delayed_update: Delay every change of the scale by one step.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A value is out of range, `init_scale` is outside the bounds, `raise_at_min_scale` or `block_at_bounds`
            lacks the bound that it requires, or `overflow_tolerance` is combined with a `hysteresis` other than 1.

    >>> rule = LossScaleRule(init_scale=2.0**15, growth_interval=2)
    >>> rule
    LossScaleRule(init_scale=32768.0, growth_interval=2)
    >>> state = rule.init(like=0.0)  # Python numbers instead of arrays
    >>> for finite in [True, True, False]:
    ...     state = rule.update(state, finite)
    ...     print(state.scale, state.good_steps)
    32768.0 1
    65536.0 0
    32768.0 0
    """

    def __repr__(self) -> str:
        """Return a call that creates the rule; arguments that equal their defaults are left out."""
        changed = (field for field in fields(self) if getattr(self, field.name) != field.default)
        return f"{type(self).__name__}({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in changed)})"

    @cached_property
    def _step(self) -> machine_floats.Step:
        """Return the function that computes a step on Python numbers, created when it is first needed."""
        return machine_floats.step_of(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the constants without the cached `_step`, since a closure cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_step"}

    def init(self, like: Array | float | None = None) -> LossScaleState:
        """
        Create the state before the first step, of arrays of shape () or of Python numbers.

        Args:
            like: Array in whose library and on whose device the state is created, or a Python float for a state of Python
                numbers. By default, the chosen backend creates the arrays.

        Raises:
            TypeError: *like* has a wrong type; or the rule requires float64, for its dtype or for a factor that float32 does
                not represent exactly, and the library has no float64 (JAX without jax_enable_x64).

        Spec: MACHINE-state.

        >>> LossScaleRule(init_scale=8.0).init(like=0.0)
        LossScaleState(scale=8.0, good_steps=0, bad_steps=0, window_steps=None, pending_scale=None)
        """
        if isinstance(like, float):
            return machine_floats.init_host(self)
        if like is not None and not is_array(like):
            raise TypeError(f"like must be an array, a Python float or None, got {excerpt(like)} of type {type(like).__name__}")
        return machine.init(self, like)

    def update(self, state: LossScaleState, finite: Flag) -> LossScaleState:
        """
        Return the state after a step. *state* is left unchanged, and no array is copied to the host.

        Args:
            state: State before the step: arrays of shape () or of one common shape, or Python numbers.
            finite: Bool of shape () or of the state's shape, or a Python bool: True if all gradients of the step were finite.

        Returns:
            The next state, in the library, on the device and in the dtypes of *state*. If `would_raise` returns True, the
            next state equals *state*.

        Raises:
            TypeError: *finite* is not a bool, or *state* is not a `LossScaleState` whose scale is float32 or float64.
            ValueError: *finite* has a wrong shape, or *state* lacks an array that the rule requires or has an unused one.

        Spec: MACHINE-pure.

        >>> rule = LossScaleRule(init_scale=8.0)
        >>> rule.update(rule.init(like=0.0), False).scale
        4.0
        """
        return self._transition(state, finite)[0]

    def would_raise(self, state: LossScaleState, finite: Flag) -> Flag:
        """
        Return a bool array of the state's shape, or a Python bool: True if the published scaler would raise an error.

        See `raise_at_min_scale` and `raise_at_or_below`; without them the result is always False. The arguments are those of
        `update`.

        Raises:
            TypeError, ValueError: As for `update`.

        Spec: MACHINE-would-raise.

        >>> rule = LossScaleRule(init_scale=1.0, min_scale=1.0, raise_at_min_scale=True)
        >>> rule.would_raise(rule.init(like=0.0), False)
        True
        """
        return self.transition(state, finite)[1]

    def transition(self, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, Flag]:
        """
        Return the results of `update` and `would_raise` from one computation. The arguments are those of `update`.

        Raises:
            TypeError, ValueError: As for `update`.

        Spec: MACHINE-pure, MACHINE-would-raise.

        >>> rule = LossScaleRule(init_scale=2.0, min_scale=1.0, raise_at_min_scale=True)
        >>> state, raises = rule.transition(rule.init(like=0.0), False)
        >>> state.scale, raises, rule.transition(state, False)[1]
        (1.0, False, True)
        """
        new_state, raises = self._transition(state, finite)
        return new_state, machine_floats.flag_like(state.scale, raises)

    def _transition(self, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, Flag]:
        """Do what `transition` does, but return a Python bool for some states of NumPy arrays."""
        try:
            result = machine_floats.transition_host(self, state, finite)
            return machine.transition(self, state, finite) if result is None else result
        except (AttributeError, TypeError):
            # Check the types of a state only after a failure, since the check would slow down every step.
            machine.check_state(state)
            raise
