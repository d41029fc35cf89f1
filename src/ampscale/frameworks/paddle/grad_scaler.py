"""
Paddle's `GradScaler` for arrays of any supported library.

Spec: spec/profiles/paddle.md.
"""

import inspect
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np

from ... import functional, presets
from ...core.dtypes import FLOATS, name_of
from ...core.replicas import SINGLE_REPLICA, Communicator
from ...core.scaling import in_dtype
from ...core.type_names import type_name
from ...core.typing import Array
from ...core.validation import check_bool, check_count, check_methods
from ...parsing import excerpt
from .._arrays import HOST
from .._numbers import OptimizerNumbers
from .._progress import STEPPED, STEPPING, UNSCALED, UNSCALING, Stage, out_of_order
from .._validation import check_keys, is_empty, number_of
from .optimizer_calls import checked_gradients, minimize_of, parameters_of, step_of, unscale_gradients
from .validation import check_enable, rule_with

_RESET_BAD_STEPS_ON = {"accumulated": ("growth", "backoff"), "consecutive": ("finite", "backoff")}
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
    """Progress of one optimizer between two updates of the scale."""

    optimizer: Any  # keeps a reference, so that the id is not reused
    stage: Stage = UNSCALING
    finite: bool = True


class GradScaler:
    """
    Paddle's `paddle.amp.GradScaler`: dynamic loss scaling for hand-written training loops.

    Works on arrays of all supported libraries. An optimizer is a `torch.optim.Optimizer`, or any object with `parameters`, each
    with `value` and `grad`, and a method ``step()`` or ``minimize(loss)``. Gradients are unscaled in place; if their arrays are
    immutable (JAX), each `grad` is replaced. A step requires one host synchronization. The scale stays in the range of normal
    float32 numbers. While one thread trains, others may call the getters and `state_dict`.

    Args:
        enable: If False, `scale` returns its argument and `minimize` only minimizes.
        init_loss_scaling: Initial scale; positive and in the range of normal float32 numbers.
        incr_ratio: Factor applied when the scale grows; greater than 1.
        decr_ratio: Factor applied when the scale backs off; in (0, 1).
        incr_every_n_steps: Number of consecutive finite steps after which the scale grows.
        decr_every_n_nan_or_inf: Number of counted overflows at which the scale backs off.
        use_dynamic_loss_scaling: If False, the scale is fixed; steps with an overflow are still skipped.
        decr_count: "accumulated", as in Paddle's documentation: a finite step does not reset the overflow count.
            "consecutive", as in Paddle's code: a finite step resets it.
        communicator: Averages gradients before they are unscaled, unless its `mean` is False, and combines the flags of all
            ranks; see `ampscale.distributed`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Spec: PADDLE-parameters, PADDLE-defaults, PADDLE-decr-accumulated, PADDLE-decr-consecutive.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer, scaler = ampscale.optimizers.SGD(network, 0.5), GradScaler(init_loss_scaling=2.0**10)
    >>> optimizer.parameters[0].grad = scaler.scale(np.float32([2.0, 4.0]))
    >>> scaler.step(optimizer)
    True
    >>> scaler.update()
    >>> network.params, scaler.get_loss_scaling()
    (array([0., 0.], dtype=float32), 1024.0)
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
        communicator: Communicator = SINGLE_REPLICA,
    ) -> None:
        check_enable(enable)
        check_bool(use_dynamic_loss_scaling, "use_dynamic_loss_scaling")
        if not isinstance(decr_count, str) or decr_count not in _RESET_BAD_STEPS_ON:
            raise ValueError(f"decr_count must be one of {list(_RESET_BAD_STEPS_ON)}, got {excerpt(decr_count)}")
        self._enable = enable
        self._dynamic = use_dynamic_loss_scaling
        self._rule = replace(
            presets.paddle_document(),
            min_scale=FLOATS["float32"].smallest_normal,
            skip_infinite_growth=True,
            reset_bad_steps_on=_RESET_BAD_STEPS_ON[decr_count],
        )
        self._rule = rule_with(
            self._rule,
            init_loss_scaling=init_loss_scaling,
            incr_ratio=incr_ratio,
            decr_ratio=decr_ratio,
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
        )
        check_methods(communicator, "communicator", "mean", "agree", "check_same")
        self._communicator, self._numbers = communicator, OptimizerNumbers()
        self._state = self._rule.init(like=HOST)
        self._progress: dict[int, _Progress] = {}

    def scale(self, var: Array) -> Array:
        """
        Multiply *var* by the scale; return *var* itself if scaling is disabled.

        Args:
            var: Floating-point or complex array of any shape, usually the loss.

        Returns:
            A new array of the same shape: float32 for a 16-bit *var*, else of its dtype.

        Raises:
            TypeError: *var* is not an array, or not floating-point or complex.

        Spec: PADDLE-scale, PADDLE-scale-dtype, PADDLE-scale-argument.

        >>> GradScaler(init_loss_scaling=1024.0).scale(np.float16(100.0)).item()
        102400.0
        """
        if not self._enable:
            return var
        if not array_api_compat.is_array_api_obj(var):
            raise TypeError(f"var must be an array, got {excerpt(var)} of type {type_name(var)}")
        widened = in_dtype(var, "float32") if name_of(var.dtype) in ("float16", "bfloat16") else var
        return functional.scale(widened, self.get_loss_scaling())

    def minimize(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """
        Unscale the gradients, minimize if all of them are finite, and update the scale.

        Args:
            optimizer: Optimizer whose parameters have scaled gradients.
            args: Passed to ``optimizer.minimize``: the scaled loss.
            kwargs: Passed to ``optimizer.minimize``.

        Returns:
            The result of ``optimizer.minimize``; (None, None) for a skipped step.

        Raises:
            RuntimeError: Since the last update, the optimizer has stepped or its step was interrupted; or another optimizer
                has been unscaled but not stepped, whose progress the update would discard.
            TypeError: ``optimizer.minimize`` does not accept these arguments. Nothing was changed.

        Spec: PADDLE-minimize, PADDLE-minimize-skips, PADDLE-minimize-passes, PADDLE-minimize-returns, PADDLE-call-order.
        """
        minimize = minimize_of(optimizer)
        with suppress(ValueError):  # a compiled function may have no signature
            inspect.signature(minimize).bind(*args, **kwargs)
        if not self._enable:
            return minimize(*args, **kwargs)
        self._check_no_other_unscaled(optimizer)
        progress = self._unscale(optimizer, "minimize")
        progress.stage = STEPPING
        result = minimize(*args, **kwargs) if progress.finite else (None, None)
        self._finish(progress)
        if self._dynamic:
            self.update()
        return result

    def unscale_(self, optimizer: Any) -> None:
        """
        Divide the gradients of *optimizer* by the scale in place, and check them; at most once between two updates.

        Args:
            optimizer: Optimizer whose parameters have scaled gradients.

        Raises:
            RuntimeError: Since the last update, the gradients have been unscaled, unscaling them was interrupted, or the
                optimizer has stepped.
            ValueError: A gradient is read-only. Nothing was changed.

        Spec: PADDLE-unscale, PADDLE-unscale-dtypes, PADDLE-call-order.
        """
        if not self._enable:
            return
        if id(optimizer) in self._progress:
            raise out_of_order("unscale_", self._progress[id(optimizer)].stage)
        self._unscale(optimizer, "unscale_")

    def step(self, optimizer: Any) -> bool:
        """
        Unscale the gradients unless `unscale_` did, and step the optimizer if all of them are finite.

        Args:
            optimizer: Optimizer whose parameters have scaled gradients.

        Returns:
            True if the optimizer stepped, or if scaling is disabled.

        Raises:
            RuntimeError: Since the last update, the optimizer has stepped or its step was interrupted.

        Spec: PADDLE-step, PADDLE-fixed-step, PADDLE-call-order.
        """
        optimizer_step = step_of(optimizer)
        if not self._enable:
            optimizer_step()
            return True
        progress = self._unscale(optimizer, "step")
        progress.stage = STEPPING
        if progress.finite:
            optimizer_step()
        self._finish(progress)
        return progress.finite

    def update(self) -> None:
        """
        Update the scale for all steps since the last update: an overflow in one of them counts as one overflow.

        An interrupted `unscale_` does not count. A fixed scale is unchanged.

        Raises:
            RuntimeError: The scale is dynamic, and neither `step` nor `unscale_` has been called since the last update.

        Spec: PADDLE-update, PADDLE-several-optimizers, PADDLE-update-needs-a-step.
        """
        if not self._enable:
            return
        if not self._dynamic:
            self._progress = self._unscaled_only()
            return
        if not self._progress:
            raise RuntimeError(
                "update() must be called after step() or unscale_(): no gradients have been checked since the last update()"
            )
        checked = [progress.finite for progress in self._progress.values() if progress.stage is not UNSCALING]
        self._state, self._progress = self._rule.update(self._state, all(checked)) if checked else self._state, {}

    def is_enable(self) -> bool:
        """Return True if scaling is enabled."""
        return self._enable

    def is_use_dynamic_loss_scaling(self) -> bool:
        """Return True if the scale is dynamic, False if it is fixed."""
        return self._dynamic

    def get_loss_scaling(self) -> float:
        """Return the current scale. Paddle has no such method: there, the scale is in the state dict only."""
        return float(self._state.scale)

    def get_init_loss_scaling(self) -> float:
        """Return the initial scale: the value that was last passed, set or loaded."""
        return self._rule.init_scale

    def set_init_loss_scaling(self, new_init_loss_scaling: float) -> None:
        """Set the initial and the current scale; the counts are kept."""
        rule = rule_with(self._rule, init_loss_scaling=new_init_loss_scaling)
        self._rule, self._state = rule, self._state._replace(scale=rule.init(like=HOST).scale)

    def get_incr_ratio(self) -> float:
        """Return the factor applied when the scale grows."""
        return self._rule.growth_factor

    def set_incr_ratio(self, new_incr_ratio: float) -> None:
        """Set the factor applied when the scale grows; greater than 1."""
        self._rule = rule_with(self._rule, incr_ratio=new_incr_ratio)

    def get_decr_ratio(self) -> float:
        """Return the factor applied when the scale backs off."""
        return self._rule.backoff_factor

    def set_decr_ratio(self, new_decr_ratio: float) -> None:
        """Set the factor applied when the scale backs off; in (0, 1)."""
        self._rule = rule_with(self._rule, decr_ratio=new_decr_ratio)

    def get_incr_every_n_steps(self) -> int:
        """Return the number of consecutive finite steps after which the scale grows."""
        return self._rule.growth_interval

    def set_incr_every_n_steps(self, new_incr_every_n_steps: int) -> None:
        """Set the number of consecutive finite steps after which the scale grows; at least 1."""
        self._rule = rule_with(self._rule, incr_every_n_steps=new_incr_every_n_steps)

    def get_decr_every_n_nan_or_inf(self) -> int:
        """Return the number of counted overflows at which the scale backs off."""
        return self._rule.hysteresis

    def set_decr_every_n_nan_or_inf(self, new_decr_every_n_nan_or_inf: int) -> None:
        """Set the number of counted overflows at which the scale backs off; at least 1."""
        self._rule = rule_with(self._rule, decr_every_n_nan_or_inf=new_decr_every_n_nan_or_inf)

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, its constants and both counts under Paddle's keys; an empty dict if scaling is disabled."""
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
        Restore the state that `state_dict` of this class or of Paddle's returned.

        A disabled scaler accepts an empty dict, and warns about any other.

        Args:
            state_dict: Mapping with Paddle's eight keys.

        Raises:
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.

        Spec: PADDLE-load-state-dict, PADDLE-load-rejects.
        """
        if not self._enable:
            if not is_empty(state_dict):
                warnings.warn("this GradScaler is disabled: the state dict is not used", stacklevel=2)
            return
        check_keys(state_dict, _KEYS)
        check_bool(state_dict["use_dynamic_loss_scaling"], "use_dynamic_loss_scaling")
        check_count(state_dict["incr_count"], "incr_count", low=0)
        check_count(state_dict["decr_count"], "decr_count", low=0)
        scale = number_of(state_dict["scale"], "scale")
        rule = rule_with(self._rule, init_loss_scaling=scale, **{key: state_dict[key] for key in _KEYS[1:5]})
        counts = (np.asarray(state_dict[key], np.int32) for key in ("incr_count", "decr_count"))
        state, dynamic = type(self._state)(rule.init(like=HOST).scale, *counts), state_dict["use_dynamic_loss_scaling"]
        progress = self._progress if dynamic else self._unscaled_only()
        self._rule, self._state, self._dynamic, self._progress = rule, state, dynamic, progress

    def _unscale(self, optimizer: Any, caller: str) -> _Progress:
        """Return the progress of *optimizer*, after unscaling and checking its gradients unless this has been done."""
        progress = self._progress.get(id(optimizer))
        if progress is not None and progress.stage is not UNSCALED:
            raise out_of_order(caller, progress.stage)
        if progress is None:
            scale = self.get_loss_scaling()
            gradients = checked_gradients(parameters_of(optimizer), scale)
            progress = self._progress[id(optimizer)] = _Progress(optimizer)
            self._average(optimizer)
            finite, arrays = unscale_gradients(gradients, scale), [parameter.grad for parameter in gradients.parameters]
            progress.finite = bool(self._communicator.agree(finite, self._state._asdict(), arrays).finite)
            progress.stage = UNSCALED
        return progress

    def _average(self, optimizer: Any) -> None:
        """Replace the gradients of *optimizer* by their means over all ranks, if the communicator averages them."""
        if self._communicator is SINGLE_REPLICA:
            return
        self._communicator.check_same(rule=self._rule, optimizer=self._numbers.number(self._communicator, optimizer)[0])
        parameters = parameters_of(optimizer)
        gradients = [parameter.grad for parameter in parameters]  # including None, which ranks compare
        means = self._communicator.mean(gradients)
        if means is not gradients:
            for parameter, mean in zip(parameters, means, strict=True):
                parameter.grad = mean

    def _unscaled_only(self) -> dict[int, _Progress]:
        """Return the progress of optimizers that were unscaled but not stepped, the only progress to keep for a fixed scale."""
        return {key: progress for key, progress in self._progress.items() if progress.stage is UNSCALED}

    def _check_no_other_unscaled(self, optimizer: Any) -> None:
        others = (progress for progress in self._progress.values() if progress.optimizer is not optimizer)
        if self._dynamic and any(progress.stage is UNSCALED for progress in others):
            raise RuntimeError(
                "minimize() updates the scale, but another optimizer has been unscaled and not stepped: step each, then update()"
            )

    def _finish(self, progress: _Progress) -> None:
        """Record that the optimizer stepped or was skipped. With a fixed scale, which has no updates, drop its progress."""
        progress.stage = STEPPED
        if not self._dynamic:
            self._progress.pop(id(progress.optimizer))
