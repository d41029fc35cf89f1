"""`mindspore.amp`: the loss scalers for hand-written training loops, and `all_finite`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import array_api_compat

from ... import functional, presets
from ...core.machine import LossScaleState
from ...core.namespaces import check_one_library
from ...core.trees import is_array, leaves, map_leaves
from ...core.type_names import type_name
from ...core.typing import Array, Flag, Tree
from ...core.validation import check_count, check_flag, check_not_traced, check_scalable
from .._arrays import HOST, snapshot
from .._validation import check_keys, check_scale_value, scale_as_float


def all_finite(inputs: tuple[Array, ...] | list[Array]) -> Flag:
    """
    Return a bool array of shape (): True if no array in *inputs* contains an infinity or a NaN.

    This is MindSpore's `mindspore.amp.all_finite`. Works on arrays of all supported libraries without a host synchronization.

    Args:
        inputs: Tuple or list of arrays of any shapes: floating-point, complex, integers or bools. Integers are finite.

    Raises:
        TypeError: *inputs* is not a tuple or list, or an element is not an array, or has another dtype.
        ValueError: *inputs* is empty.

    Spec: MINDSPORE-all-finite, MINDSPORE-all-finite-empty, MINDSPORE-all-finite-flat.

    >>> bool(all_finite([np.float32([1.0, 2.0]), np.float32([np.nan])]))
    False
    """
    if not isinstance(inputs, tuple | list):
        raise TypeError(
            f"inputs must be a tuple or list of arrays, got {type(inputs).__name__}; "
            "for a dict, pass list(gradients.values()), or call ampscale.all_finite, which accepts dicts"
        )
    if not inputs:
        raise ValueError("inputs must contain at least one array, got none")
    for index, value in enumerate(inputs):
        if not is_array(value):
            raise TypeError(f"inputs[{index}] must be an array, got {type_name(value)}")
    return functional.all_finite(inputs)


class LossScaler(ABC):
    """
    MindSpore's `mindspore.amp.LossScaler`: abstract base class of the loss scalers, designed to be subclassed.

    The scalers of this module work on arrays of all supported libraries. A subclass must implement all three methods.

    Spec: MINDSPORE-scaler-abstract.

    >>> class Unscaled(LossScaler):
    ...     def scale(self, inputs):
    ...         return inputs
    ...     def unscale(self, inputs):
    ...         return inputs
    ...     def adjust(self, grads_finite):
    ...         return False
    >>> Unscaled().scale(2.0)
    2.0
    """

    @abstractmethod
    def scale(self, inputs: Tree) -> Tree:
        """
        Multiply *inputs* by the scale.

        Args:
            inputs: Loss or gradients: one array, or several in nested containers.

        Returns:
            New arrays of the same dtypes in the same containers; *inputs* is unchanged.

        Spec: MINDSPORE-scaler-scale.
        """

    @abstractmethod
    def unscale(self, inputs: Tree) -> Tree:
        """
        Divide *inputs* by the scale.

        Args:
            inputs: Loss or gradients: one array, or several in nested containers.

        Returns:
            New arrays of the same dtypes in the same containers; *inputs* is unchanged.

        Spec: MINDSPORE-scaler-unscale.
        """

    @abstractmethod
    def adjust(self, grads_finite: Flag) -> bool:
        """
        Update the scale after a step.

        Args:
            grads_finite: Bool, shape (): True if all gradients of the step were finite.

        Returns:
            True for a dynamic scaler, False for a static one, whatever *grads_finite* is.

        Spec: MINDSPORE-adjust, MINDSPORE-adjust-returns.
        """


class _PlacedScaler(LossScaler):
    """Scaler whose state is created on the host, is moved to the library and device of the first array, and then stays there."""

    def __init__(self, state: LossScaleState) -> None:
        self._state = state
        self._is_placed = False

    def __repr__(self) -> str:
        """Return the scale, which requires a host synchronization."""
        return f"{type(self).__name__}(scale_value={float(self._state.scale)})"

    def scale(self, inputs: Tree) -> Tree:
        """Multiply *inputs* by the scale; see `LossScaler.scale`."""
        return functional.scale(inputs, self._scale_for(inputs))

    def unscale(self, inputs: Tree) -> Tree:
        """Divide *inputs* by the scale; see `LossScaler.unscale`."""
        return functional.unscale(inputs, self._scale_for(inputs))

    def _scale_for(self, inputs: Tree) -> Array:
        """Return the scale in the library and on the device of *inputs*. Invalid inputs raise an error, and move nothing."""
        check_one_library(inputs=inputs)
        check_scalable(inputs, "inputs")
        return self._placed_state(inputs).scale

    def _placed_state(self, inputs: Tree) -> LossScaleState:
        """Return the state, after moving it to the library and device of the first array in *inputs* if it has not been moved."""
        like = next(iter(leaves(inputs)), None)
        if like is not None and not self._is_placed:
            xp = array_api_compat.array_namespace(like)
            device = array_api_compat.device(like)
            placed: LossScaleState = map_leaves(
                lambda value: xp.asarray(value.item(), dtype=getattr(xp, value.dtype.name), device=device), self._state
            )
            if device is None:  # JAX is tracing *like*: arrays created during a trace must not outlive it
                return placed
            self._state, self._is_placed = placed, True
        return self._state


class StaticLossScaler(_PlacedScaler):
    """
    MindSpore's `mindspore.amp.StaticLossScaler`: a loss scaler with a constant scale.

    Works on arrays of all supported libraries. The scale is stored in the library and on the device of the first array.

    Args:
        scale_value: Python number, at least 1.

    Raises:
        TypeError: *scale_value* is not an int or float.
        ValueError: *scale_value* is below 1, NaN, or infinite in float32.

    Spec: MINDSPORE-static-*.

    >>> scaler = StaticLossScaler(1024)
    >>> scaler.scale(np.float32([1.0, 2.0])).tolist(), scaler.unscale(np.float32([512.0])).tolist()
    ([1024.0, 2048.0], [0.5])
    """

    def __init__(self, scale_value: float) -> None:
        check_scale_value(scale_value, "scale_value")
        super().__init__(presets.static(float(scale_value)).init(like=HOST))

    @property
    def scale_value(self) -> Array:
        """Return a copy of the scale: float32, shape ()."""
        return snapshot(self._state.scale)

    def adjust(self, grads_finite: Flag) -> bool:
        """Return False. The scale is constant, and *grads_finite* is ignored."""
        return False


class DynamicLossScaler(_PlacedScaler):
    """
    MindSpore's `mindspore.amp.DynamicLossScaler`: dynamic loss scaling for hand-written training loops.

    Works on arrays of all supported libraries without a host synchronization. The first array that is scaled, unscaled or
    passed to `adjust` determines the library and the device of the scale. The scale never falls below 1, and a growth that
    would make it non-finite is skipped. While a thread trains, other threads may read the properties and the state dict.

    Args:
        scale_value: Initial scale: Python number, at least 1.
        scale_factor: Int, at least 1. A growth multiplies the scale by it, and a backoff divides the scale by it.
        scale_window: Number of consecutive finite steps after which the scale grows.

    Raises:
        TypeError: An argument has the wrong type; *scale_factor* and *scale_window* must not be floats.
        ValueError: An argument is out of range.

    Spec: MINDSPORE-dynamic-*, MACHINE-growth-window, MACHINE-min-scale, MACHINE-skip-infinite-growth.

    >>> scaler = DynamicLossScaler(2.0**10, scale_factor=2, scale_window=1000)
    >>> gradients = scaler.unscale([np.float32([2048.0, np.inf])])
    >>> scaler.adjust(all_finite(gradients)), float(scaler.scale_value)
    (True, 512.0)
    """

    def __init__(self, scale_value: float, scale_factor: int, scale_window: int) -> None:
        check_scale_value(scale_value, "scale_value")
        check_count(scale_factor, "scale_factor")
        check_count(scale_window, "scale_window")
        self._rule = presets.mindspore(float(scale_value), scale_factor, scale_window)
        super().__init__(self._rule.init(like=HOST))

    @property
    def scale_value(self) -> Array:
        """Return a copy of the scale: float32, shape (). Can be set to a positive, finite number or an array of one element."""
        return snapshot(self._state.scale)

    @scale_value.setter
    def scale_value(self, value: Any) -> None:
        self._set("scale", scale_as_float(value, "scale_value"))

    @property
    def counter(self) -> Array:
        """Return a copy of the count of finite steps since the last growth or overflow: int32, shape (). Can be set to an int."""
        return snapshot(self._state.good_steps)

    @counter.setter
    def counter(self, value: int) -> None:
        check_count(value, "counter", low=0)
        self._set("good_steps", value)

    def adjust(self, grads_finite: Flag) -> bool:
        """
        Update the scale after a step, and return True.

        Args:
            grads_finite: Bool, shape (), or Python bool: True if all gradients of the step were finite.

        Raises:
            TypeError: *grads_finite* is not a bool.
            ValueError: *grads_finite* has the wrong shape, or is being traced by JAX.

        Spec: MINDSPORE-adjust, MINDSPORE-adjust-argument, MINDSPORE-adjust-returns.
        """
        check_flag(grads_finite, "grads_finite")
        state = self._state
        if not isinstance(grads_finite, bool):  # a Python bool has no library and no device
            check_not_traced(grads_finite, "grads_finite", "the scaler", "a LossScaleRule")
            state = self._placed_state(grads_finite)
        self._state = self._rule.update(state, grads_finite)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, the counter and the arguments of the constructor as Python numbers."""
        rule, state = self._rule, self._state
        return {
            "scale_value": float(state.scale),
            "counter": int(state.good_steps),
            "scale_factor": int(rule.growth_factor),
            "scale_window": rule.growth_interval,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the state that `state_dict` of this or another scaler returned.

        Raises:
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.
        """
        check_keys(state_dict, ("scale_value", "counter", "scale_factor", "scale_window"))
        check_count(state_dict["counter"], "counter", low=0)
        loaded = DynamicLossScaler(1, state_dict["scale_factor"], state_dict["scale_window"])
        loaded.scale_value = state_dict["scale_value"]
        loaded.counter = state_dict["counter"]
        vars(self).update(vars(loaded))  # in one call, so that other threads never read old and new values together

    def _set(self, name: str, value: float) -> None:
        """Set one array of the state to *value*: replace it by a new array with the same library, dtype and device."""
        array = getattr(self._state, name)
        self._state = self._state._replace(**{name: array_api_compat.array_namespace(array).full_like(array, value)})
