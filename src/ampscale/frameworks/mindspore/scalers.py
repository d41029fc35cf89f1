"""
`mindspore.amp`: the loss scalers of hand-written loops, and `all_finite`.

Spec: MINDSPORE-all-finite, MINDSPORE-scaler-*, MINDSPORE-static-*, MINDSPORE-dynamic-*.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import array_api_compat

from ... import functional, presets
from ...core.machine import LossScaleState
from ...core.trees import leaves, map_leaves
from ...core.type_names import type_name
from ...core.typing import Array, Flag, Tree
from ...core.validation import check_count, check_flag
from .._arrays import HOST, snapshot
from .._validation import check_keys, check_scale_value, number_of


def all_finite(inputs: tuple[Array, ...] | list[Array]) -> Flag:
    """
    Whether no array in *inputs* holds an infinity or a NaN: bool, shape ().

    Args:
        inputs: A tuple or list of arrays, of any shapes and dtypes; integers are finite.

    Raises:
        TypeError: *inputs* is no tuple or list, or something in it is no array.
        ValueError: *inputs* is empty.

    Spec: MINDSPORE-all-finite, MINDSPORE-all-finite-empty, MINDSPORE-all-finite-flat.
    """
    if not isinstance(inputs, tuple | list):
        raise TypeError(f"inputs must be a tuple or list of arrays, got {type(inputs).__name__}")
    if not inputs:
        raise ValueError("inputs must hold at least one array, got none")
    for index, value in enumerate(inputs):
        if not array_api_compat.is_array_api_obj(value):
            raise TypeError(f"inputs[{index}] must be an array, got {type_name(value)}")
    return functional.all_finite(inputs)


class LossScaler(ABC):
    """
    Manages the loss scale of a hand-written training loop; heirs implement all three methods.

    Spec: MINDSPORE-scaler-abstract.
    """

    @abstractmethod
    def scale(self, inputs: Tree) -> Tree:
        """*inputs*, a loss or gradients, times the scale: new arrays of the same dtypes."""

    @abstractmethod
    def unscale(self, inputs: Tree) -> Tree:
        """*inputs*, a loss or gradients, divided by the scale: new arrays of the same dtypes."""

    @abstractmethod
    def adjust(self, grads_finite: Flag) -> bool:
        """Moves the scale, given whether the gradients were finite: bool, shape ()."""


class StaticLossScaler(LossScaler):
    """
    A loss scaler whose scale stays.

    Args:
        scale_value: The scale: a Python number of at least 1.

    Raises:
        TypeError: *scale_value* is no int or float.
        ValueError: It is below 1, NaN or infinite.

    Spec: MINDSPORE-static-*.
    """

    def __init__(self, scale_value: float) -> None:
        check_scale_value(scale_value, "scale_value")
        self._placed = PlacedState(presets.static(float(scale_value)).init(like=HOST))

    @property
    def scale_value(self) -> Array:
        """The scale: float32, shape (). A snapshot."""
        return snapshot(self._placed.state.scale)

    def scale(self, inputs: Tree) -> Tree:
        """*inputs* times the scale: new arrays of the same dtypes."""
        return functional.scale(inputs, self._placed.beside(inputs).scale)

    def unscale(self, inputs: Tree) -> Tree:
        """*inputs* divided by the scale: new arrays of the same dtypes."""
        return functional.unscale(inputs, self._placed.beside(inputs).scale)

    def adjust(self, grads_finite: Flag) -> bool:
        """Nothing; returns False. *grads_finite* is not looked at."""
        return False


class DynamicLossScaler(LossScaler):
    """
    A loss scaler that looks for the largest scale without overflow.

    Args:
        scale_value: The first scale: a Python number of at least 1.
        scale_factor: The scale is multiplied or divided by this: an int of at least 1.
        scale_window: Finite steps in a row that make the scale grow: an int of at least 1.

    The scale never falls below 1, and a growth that would not be finite keeps it. While one thread steps, any others may read
    the properties and call `state_dict`.

    Raises:
        TypeError: An argument is of another type; a float factor or window too.
        ValueError: An argument is out of range, NaN or infinite.

    Spec: MINDSPORE-dynamic-*, MACHINE-growth-window, MACHINE-min-scale, MACHINE-skip-infinite-growth.
    """

    def __init__(self, scale_value: float, scale_factor: int, scale_window: int) -> None:
        check_scale_value(scale_value, "scale_value")
        check_count(scale_factor, "scale_factor")
        check_count(scale_window, "scale_window")
        self._rule = presets.mindspore(float(scale_value), scale_factor, scale_window)
        self._placed = PlacedState(self._rule.init(like=HOST))

    @property
    def scale_value(self) -> Array:
        """The scale: float32, shape (). A snapshot. Set it to a positive, finite number."""
        return snapshot(self._placed.state.scale)

    @scale_value.setter
    def scale_value(self, value: Any) -> None:
        state = self._placed.state
        self._placed.state = state._replace(scale=filled_like(state.scale, number_of(value, "scale_value")))

    @property
    def counter(self) -> Array:
        """Finite steps since the last growth or overflow: int32, shape (). Set it to an int of at least 0."""
        return snapshot(self._placed.state.good_steps)

    @counter.setter
    def counter(self, value: int) -> None:
        check_count(value, "counter", low=0)
        state = self._placed.state
        self._placed.state = state._replace(good_steps=filled_like(state.good_steps, value))

    def scale(self, inputs: Tree) -> Tree:
        """*inputs* times the scale: new arrays of the same dtypes."""
        return functional.scale(inputs, self._placed.beside(inputs).scale)

    def unscale(self, inputs: Tree) -> Tree:
        """*inputs* divided by the scale: new arrays of the same dtypes."""
        return functional.unscale(inputs, self._placed.beside(inputs).scale)

    def adjust(self, grads_finite: Flag) -> bool:
        """
        Moves the scale; returns True, whether it changed or not.

        Args:
            grads_finite: Bool, shape (): whether the gradients were finite.

        Raises:
            TypeError: *grads_finite* is no bool.
            ValueError: It has another shape, or JAX is tracing it.
        """
        check_flag(grads_finite, "grads_finite")
        flag = None if isinstance(grads_finite, bool) else grads_finite
        if flag is not None and array_api_compat.device(flag) is None:  # JAX's way to say that the array is being traced
            raise ValueError(
                "grads_finite must not be traced, since the scaler keeps what is computed; under jit, use a LossScaleRule"
            )
        self._placed.state = self._rule.update(self._placed.beside(flag), grads_finite)
        return True

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on, as Python numbers."""
        rule, state = self._rule, self._placed.state
        return {
            "scale_value": float(state.scale),
            "counter": int(state.good_steps),
            "scale_factor": int(rule.growth_factor),
            "scale_window": rule.growth_interval,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on where another scaler was when it gave *state_dict*.

        Raises:
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        check_keys(state_dict, ("scale_value", "counter", "scale_factor", "scale_window"))
        check_count(state_dict["counter"], "counter", low=0)
        loaded = DynamicLossScaler(1, state_dict["scale_factor"], state_dict["scale_window"])
        loaded.scale_value = state_dict["scale_value"]
        loaded.counter = state_dict["counter"]
        self._rule, self._placed = loaded._rule, loaded._placed


class PlacedState:
    """
    The state of a scaler that goes where its first array is, and stays there.

    Made on the host, so that its numbers can be set before there is any array.
    """

    def __init__(self, state: LossScaleState) -> None:
        self.state = state
        self._placed = False

    def beside(self, tree: Tree) -> LossScaleState:
        """The state, in the library and on the device of the first array that was ever handed in."""
        like = next(iter(leaves(tree)), None)
        if like is not None and not self._placed:
            xp, device = array_api_compat.array_namespace(like), array_api_compat.device(like)
            placed: LossScaleState = map_leaves(
                lambda value: xp.asarray(value.item(), dtype=getattr(xp, value.dtype.name), device=device), self.state
            )
            if device is None:  # JAX's way to say that the array is being traced, and that nothing made beside it may be kept
                return placed
            self.state, self._placed = placed, True
        return self.state


def filled_like(array: Array, value: float) -> Array:
    """A new array like *array*, of shape (), that holds *value*."""
    return array_api_compat.array_namespace(array).full_like(array, value)
