"""
Paddle's `GradScaler`.

Spec: spec/profiles/paddle.md.
"""

import inspect
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import nextafter
from typing import Any

import array_api_compat
import numpy as np

from ... import functional, presets
from ...core.dtypes import FLOATS, name_of
from ...core.rule import LossScaleRule
from ...core.scaling import in_dtype
from ...core.type_names import type_name
from ...core.typing import Array
from ...core.validation import check_bool, check_count, check_number
from ...parsing import excerpt
from .._arrays import HOST
from .._progress import Stage, out_of_order
from .._validation import check_keys, is_empty, number_of
from .optimizer_calls import checked_gradients, minimize_of, parameters_of, step_of, unscale_gradients

_REFILL = {"accumulated": ("growth", "backoff"), "consecutive": ("finite", "backoff")}
_KEYS = (
    "scale",
    "incr_ratio",
    "decr_ratio",
    "incr_every_n_steps",
    "decr_every_n_nan_or_inf",
    "incr_count",
    "decr_count",
    "use_dynamic_loss_scaling",
)


@dataclass
class _Progress:
    """One optimizer between two updates of the scale."""

    optimizer: Any  # held, so that its id stays its own
    stage: Stage = Stage.UNSCALING
    finite: bool = True


class GradScaler:
    """
    Scales the loss of a hand-written loop, and skips the steps whose gradients overflowed.

    Args:
        enable: Whether there is any scaling; if not, `scale` returns its argument and `minimize` only minimizes.
        init_loss_scaling: The first scale; positive and finite.
        incr_ratio: Multiplies the scale when it grows; above 1.
        decr_ratio: Multiplies the scale when it shrinks; in (0, 1).
        incr_every_n_steps: Steps with finite gradients in a row that make the scale grow.
        decr_every_n_nan_or_inf: Steps with a NaN or an infinity that make the scale shrink.
        use_dynamic_loss_scaling: Whether the scale moves; a fixed scale still skips.
        decr_count: "accumulated", the document's word: overflows count until the scale grows or shrinks, also over
            finite steps between them. "consecutive": a finite step sets their count to zero, as Paddle's code does.

    An optimizer is a `torch.optim.Optimizer`, or any object with `parameters`, each with `value` and `grad`, and with
    ``step()`` or ``minimize(loss)``. Gradients are unscaled in place; where arrays cannot be written to, as JAX's, each
    `grad` is replaced. The scale stays within the normal float32 numbers. While one thread steps, any others may call the
    getters and `state_dict`.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of range.

    Spec: PADDLE-parameters, PADDLE-defaults, PADDLE-decr-accumulated, PADDLE-decr-consecutive.
    """

    def __init__(
        self,
        enable: bool = True,
        init_loss_scaling: float = 32768.0,
        incr_ratio: float = 2.0,
        decr_ratio: float = 0.5,
        incr_every_n_steps: int = 1000,
        decr_every_n_nan_or_inf: int = 2,
        use_dynamic_loss_scaling: bool = True,
        *,
        decr_count: str = "accumulated",
    ) -> None:
        _check_enable(enable)
        check_bool(use_dynamic_loss_scaling, "use_dynamic_loss_scaling")
        if not isinstance(decr_count, str) or decr_count not in _REFILL:
            raise ValueError(f"decr_count must be one of {list(_REFILL)}, got {excerpt(decr_count)}")
        self._enable = enable
        self._dynamic = use_dynamic_loss_scaling
        self._rule = replace(
            presets.paddle_document(),
            min_scale=FLOATS["float32"].smallest_normal,
            skip_infinite_growth=True,
            reset_bad_steps_on=_REFILL[decr_count],
        )
        self._rule = self._changed(
            init_loss_scaling=init_loss_scaling,
            incr_ratio=incr_ratio,
            decr_ratio=decr_ratio,
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
        )
        self._state = self._rule.init(like=HOST)
        self._progress: dict[int, _Progress] = {}

    def scale(self, var: Array) -> Array:
        """
        *var* times the scale; *var* itself where scaling is off.

        Args:
            var: Floating-point, any shape: usually the loss.

        Returns:
            A new array of the same shape; float32 for a 16-bit *var*, else its dtype.

        Raises:
            TypeError: *var* is no array, or not floating-point.
        """
        if not self._enable:
            return var
        if not array_api_compat.is_array_api_obj(var):
            raise TypeError(f"var must be an array, got {excerpt(var)} of type {type_name(var)}")
        wide = in_dtype(var, "float32") if name_of(var.dtype) in ("float16", "bfloat16") else var
        return functional.scale(wide, self.get_loss_scaling())

    def minimize(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """
        Unscales, steps if all gradients are finite, and moves the scale.

        Args:
            optimizer: Whose parameters to move.
            args: Handed to ``optimizer.minimize``: the scaled loss.
            kwargs: Handed to ``optimizer.minimize``.

        Returns:
            What ``optimizer.minimize`` returned; (None, None) for a skipped step.

        Raises:
            RuntimeError: The optimizer has stepped since the last update, or its step raised; or another one has been
                unscaled and not stepped, which the update would forget.
            TypeError: The optimizer's `minimize` does not take these arguments. Nothing has changed then.
        """
        minimize = minimize_of(optimizer)
        with suppress(ValueError):  # a compiled function tells no signature
            inspect.signature(minimize).bind(*args, **kwargs)
        if not self._enable:
            return minimize(*args, **kwargs)
        self._check_none_waits(optimizer)
        progress = self._unscaled(optimizer, "minimize")
        progress.stage = Stage.STEPPING
        result = minimize(*args, **kwargs) if progress.finite else (None, None)
        self._close(progress)
        if self._dynamic:
            self.update()
        return result

    def unscale_(self, optimizer: Any) -> None:
        """
        Divides the gradients of *optimizer* by the scale, in place, and checks them; once between two updates.

        Raises:
            RuntimeError: It has been done since the last update, or was interrupted, or the optimizer has stepped.
            ValueError: A gradient is read-only. Nothing has changed then.
        """
        if not self._enable:
            return
        if id(optimizer) in self._progress:
            raise out_of_order("unscale_", self._progress[id(optimizer)].stage)
        self._unscaled(optimizer, "unscale_")

    def step(self, optimizer: Any) -> bool:
        """
        Unscales, if `unscale_` has not, and steps if all gradients are finite.

        Returns:
            Whether the optimizer stepped.

        Raises:
            RuntimeError: The optimizer has stepped since the last `update`, or its step raised.
        """
        stepping = step_of(optimizer)
        if not self._enable:
            stepping()
            return True
        progress = self._unscaled(optimizer, "step")
        progress.stage = Stage.STEPPING
        if progress.finite:
            stepping()
        self._close(progress)
        return progress.finite

    def update(self) -> None:
        """
        Moves the scale, given all steps since the last update: one overflow among them is an overflow.

        An interrupted `unscale_` counts for nothing. A fixed scale stays.

        Raises:
            RuntimeError: There has been no step or `unscale_` since the last update.
        """
        if not self._enable:
            return
        if not self._dynamic:
            self._progress = self._waiting()
            return
        if not self._progress:
            raise RuntimeError("update() must follow step() or unscale_(): nothing has been checked since the last update()")
        checked = [progress.finite for progress in self._progress.values() if progress.stage is not Stage.UNSCALING]
        self._state, self._progress = self._rule.update(self._state, all(checked)) if checked else self._state, {}

    def is_enable(self) -> bool:
        """Whether there is any scaling."""
        return self._enable

    def is_use_dynamic_loss_scaling(self) -> bool:
        """Whether the scale moves."""
        return self._dynamic

    def get_loss_scaling(self) -> float:
        """The present scale. Paddle has no such method; there it is in the state dict only."""
        return float(self._state.scale)

    def get_init_loss_scaling(self) -> float:
        """The first scale, as it was given, set or loaded."""
        return self._rule.init_scale

    def set_init_loss_scaling(self, new_init_loss_scaling: float) -> None:
        """Sets the first scale, and the present one too; the counts stay."""
        rule = self._changed(init_loss_scaling=new_init_loss_scaling)
        self._rule, self._state = rule, self._state._replace(scale=rule.init(like=HOST).scale)

    def get_incr_ratio(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._rule.growth_factor

    def set_incr_ratio(self, new_incr_ratio: float) -> None:
        """Sets what the scale is multiplied by when it grows; above 1."""
        self._rule = self._changed(incr_ratio=new_incr_ratio)

    def get_decr_ratio(self) -> float:
        """What the scale is multiplied by when it shrinks."""
        return self._rule.backoff_factor

    def set_decr_ratio(self, new_decr_ratio: float) -> None:
        """Sets what the scale is multiplied by when it shrinks; in (0, 1)."""
        self._rule = self._changed(decr_ratio=new_decr_ratio)

    def get_incr_every_n_steps(self) -> int:
        """Finite steps in a row that make the scale grow."""
        return self._rule.growth_interval

    def set_incr_every_n_steps(self, new_incr_every_n_steps: int) -> None:
        """Sets the finite steps in a row that make the scale grow."""
        self._rule = self._changed(incr_every_n_steps=new_incr_every_n_steps)

    def get_decr_every_n_nan_or_inf(self) -> int:
        """Overflows that make the scale shrink."""
        return self._rule.hysteresis

    def set_decr_every_n_nan_or_inf(self, new_decr_every_n_nan_or_inf: int) -> None:
        """Sets the overflows that make the scale shrink."""
        self._rule = self._changed(decr_every_n_nan_or_inf=new_decr_every_n_nan_or_inf)

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on, under Paddle's keys; empty where scaling is off."""
        if not self._enable:
            return {}
        rule, (scale, good_steps, bad_steps) = self._rule, self._state[:3]
        return {
            "scale": np.array([scale], np.float32),
            "incr_ratio": rule.growth_factor,
            "decr_ratio": rule.backoff_factor,
            "incr_every_n_steps": rule.growth_interval,
            "decr_every_n_nan_or_inf": rule.hysteresis,
            "incr_count": int(good_steps),
            "decr_count": int(bad_steps),
            "use_dynamic_loss_scaling": self._dynamic,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on where another scaler was when it gave *state_dict*; Paddle's own state dicts load as well.

        A scaler that is off takes the empty dict, and warns about any other.

        Raises:
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        if not self._enable:
            if not is_empty(state_dict):
                warnings.warn("this GradScaler is off: the state dict is not used", stacklevel=2)
            return
        check_keys(state_dict, _KEYS)
        check_bool(state_dict["use_dynamic_loss_scaling"], "use_dynamic_loss_scaling")
        check_count(state_dict["incr_count"], "incr_count", low=0)
        check_count(state_dict["decr_count"], "decr_count", low=0)
        scale = number_of(state_dict["scale"], "scale")
        rule = self._changed(init_loss_scaling=scale, **{key: state_dict[key] for key in _KEYS[1:5]})
        counts = (np.asarray(state_dict[key], np.int32) for key in ("incr_count", "decr_count"))
        state, dynamic = type(self._state)(rule.init(like=HOST).scale, *counts), state_dict["use_dynamic_loss_scaling"]
        progress = self._progress if dynamic else self._waiting()
        self._rule, self._state, self._dynamic, self._progress = rule, state, dynamic, progress

    def _unscaled(self, optimizer: Any, caller: str) -> _Progress:
        """The progress of *optimizer*, whose gradients are unscaled and checked now if they were not."""
        progress = self._progress.get(id(optimizer))
        if progress is not None and progress.stage is not Stage.UNSCALED:
            raise out_of_order(caller, progress.stage)
        if progress is None:
            scale = self.get_loss_scaling()
            gradients = checked_gradients(parameters_of(optimizer), scale)
            progress = self._progress[id(optimizer)] = _Progress(optimizer)
            progress.finite = bool(unscale_gradients(gradients, scale))
            progress.stage = Stage.UNSCALED
        return progress

    def _waiting(self) -> dict[int, _Progress]:
        """The optimizers that are to step; with a fixed scale no update lets the others go on."""
        return {key: progress for key, progress in self._progress.items() if progress.stage is Stage.UNSCALED}

    def _check_none_waits(self, optimizer: Any) -> None:
        others = (progress for progress in self._progress.values() if progress.optimizer is not optimizer)
        if self._dynamic and any(progress.stage is Stage.UNSCALED for progress in others):
            raise RuntimeError(
                "minimize() updates the scale, but another optimizer waits for its step(): step each, then update()"
            )

    def _close(self, progress: _Progress) -> None:
        """The optimizer has stepped or was skipped. With a fixed scale no update follows, and it may come again."""
        progress.stage = Stage.STEPPED
        if not self._dynamic:
            self._progress.pop(id(progress.optimizer))

    def _changed(self, **arguments: Any) -> LossScaleRule:
        """The rule with the documented arguments changed, after they were checked."""
        if "incr_ratio" in arguments:
            check_number(arguments["incr_ratio"], "incr_ratio", "a finite number above 1", 1, above=True)
        if "decr_ratio" in arguments:
            check_number(arguments["decr_ratio"], "decr_ratio", "a number above 0 and below 1", 0, nextafter(1, 0), above=True)
        if "init_loss_scaling" in arguments:
            smallest, largest = FLOATS["float32"].smallest_normal, FLOATS["float32"].largest
            wanted = "a positive, finite number that is a normal float32"
            check_number(arguments["init_loss_scaling"], "init_loss_scaling", wanted, smallest, largest)
        for name in ("incr_every_n_steps", "decr_every_n_nan_or_inf"):
            if name in arguments:
                check_count(arguments[name], name)
        return replace(self._rule, **{_FIELDS[name]: value for name, value in arguments.items()})


def _check_enable(value: Any) -> None:
    if isinstance(value, str) or type(value).__name__ == "device":
        torchs = "this GradScaler is Paddle's; torch's, whose first argument is a device, is ampscale.frameworks.torch.GradScaler"
        raise TypeError(f"enable must be a bool, got the device {excerpt(value)}: {torchs}")
    check_bool(value, "enable")


_FIELDS = {
    "init_loss_scaling": "init_scale",
    "incr_ratio": "growth_factor",
    "decr_ratio": "backoff_factor",
    "incr_every_n_steps": "growth_interval",
    "decr_every_n_nan_or_inf": "hysteresis",
}
