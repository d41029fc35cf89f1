"""
Storage of Paddle's `GradScaler`: the scale, its counts and its constants, with getters, setters and state dicts.

Spec: PADDLE-enable, PADDLE-getters, PADDLE-setters-checked, PADDLE-set-init-loss-scaling, PADDLE-state-dict,
PADDLE-load-state-dict.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ... import presets
from ...core.validation import check_bool, check_count
from ...parsing import excerpt
from .._arrays import HOST
from .._calls import UNSCALED, Site
from .._grad_scaler import Monitor, Progress
from .._validation import MIN_SCALE, is_loadable, rule_with, scale_as_float

_RESET_BAD_STEPS_ON = {"accumulated": ("growth", "backoff"), "consecutive": ("finite", "backoff")}
_FIELDS = {  # fields of the rule, by the names of the constructor's arguments
    "init_loss_scaling": "init_scale",
    "incr_ratio": "growth_factor",
    "decr_ratio": "backoff_factor",
    "incr_every_n_steps": "growth_interval",
    "decr_every_n_nan_or_inf": "hysteresis",
}
_CONSTANTS = tuple(_FIELDS)[1:]  # a state dict does not contain the initial scale
_KEYS = ("scale", *_CONSTANTS, "incr_count", "decr_count", "use_dynamic_loss_scaling")


class StoredScale:
    """Scale, counts and constants of a `GradScaler`, which documents the arguments."""

    def __init__(self, enable: bool, use_dynamic_loss_scaling: bool, decr_count: str, **constants: Any) -> None:
        _check_enable(enable)
        check_bool(use_dynamic_loss_scaling, "use_dynamic_loss_scaling")
        if not isinstance(decr_count, str) or decr_count not in _RESET_BAD_STEPS_ON:
            raise ValueError(f"decr_count must be one of {list(_RESET_BAD_STEPS_ON)}, got {excerpt(decr_count)}")
        self._enable = enable
        self._dynamic = use_dynamic_loss_scaling
        resets = _RESET_BAD_STEPS_ON[decr_count]
        rule = replace(presets.paddle_document(), min_scale=MIN_SCALE, skip_infinite_growth=True, reset_bad_steps_on=resets)
        self._rule = rule_with(rule, _FIELDS, **constants)
        self._state = self._rule.init(like=HOST)
        self._progress: dict[int, Progress] = {}
        self._updated_at: Site | None = None  # call site of the last update()
        self._monitor: Monitor | None = None

    def __repr__(self) -> str:
        """Return the scale and the counts of finite steps and of overflows."""
        if not self._enable:
            return "GradScaler(enable=False)"
        state = self._state
        return f"GradScaler(scale={float(state.scale)}, incr_count={int(state.good_steps)}, decr_count={int(state.bad_steps)})"

    def is_enable(self) -> bool:
        """Return True if scaling is enabled."""
        return self._enable

    def is_use_dynamic_loss_scaling(self) -> bool:
        """Return True if the scale is dynamic, False if it is fixed."""
        return self._dynamic

    def get_loss_scaling(self) -> float:
        """Return the current scale. Paddle's class has no such method: only its state dict contains the scale."""
        return float(self._state.scale)

    def get_init_loss_scaling(self) -> float:
        """Return the initial scale: the one that was last passed to the constructor, set, or loaded from a state dict."""
        return self._rule.init_scale

    def set_init_loss_scaling(self, new_init_loss_scaling: float) -> None:
        """Set the initial and the current scale; the counts are kept."""
        rule = rule_with(self._rule, _FIELDS, init_loss_scaling=new_init_loss_scaling)
        self._rule, self._state = rule, self._state._replace(scale=rule.init(like=HOST).scale)

    def get_incr_ratio(self) -> float:
        """Return the factor applied when the scale grows."""
        return self._rule.growth_factor

    def set_incr_ratio(self, new_incr_ratio: float) -> None:
        """Set the factor applied when the scale grows; greater than 1."""
        self._rule = rule_with(self._rule, _FIELDS, incr_ratio=new_incr_ratio)

    def get_decr_ratio(self) -> float:
        """Return the factor applied when the scale backs off."""
        return self._rule.backoff_factor

    def set_decr_ratio(self, new_decr_ratio: float) -> None:
        """Set the factor applied when the scale backs off; in (0, 1)."""
        self._rule = rule_with(self._rule, _FIELDS, decr_ratio=new_decr_ratio)

    def get_incr_every_n_steps(self) -> int:
        """Return the number of consecutive finite steps after which the scale grows."""
        return self._rule.growth_interval

    def set_incr_every_n_steps(self, new_incr_every_n_steps: int) -> None:
        """Set the number of consecutive finite steps after which the scale grows; at least 1."""
        self._rule = rule_with(self._rule, _FIELDS, incr_every_n_steps=new_incr_every_n_steps)

    def get_decr_every_n_nan_or_inf(self) -> int:
        """Return the number of counted overflows at which the scale backs off."""
        return self._rule.hysteresis

    def set_decr_every_n_nan_or_inf(self, new_decr_every_n_nan_or_inf: int) -> None:
        """Set the number of counted overflows at which the scale backs off; at least 1."""
        self._rule = rule_with(self._rule, _FIELDS, decr_every_n_nan_or_inf=new_decr_every_n_nan_or_inf)

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, its constants and both counts under Paddle's keys; an empty dict if scaling is disabled."""
        if not self._enable:
            return {}
        rule, state = self._rule, self._state
        return {
            "scale": np.array([state.scale], np.float32),
            **{name: getattr(rule, _FIELDS[name]) for name in _CONSTANTS},
            "incr_count": int(state.good_steps),
            "decr_count": int(state.bad_steps),
            "use_dynamic_loss_scaling": self._dynamic,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the state that `state_dict` of this class or of Paddle's class returned.

        A disabled scaler accepts an empty dict, and warns about any other.

        Args:
            state_dict: Mapping with Paddle's eight keys.

        Raises:
            RuntimeError: *state_dict* is empty, so a disabled scaler returned it.
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.

        Spec: PADDLE-load-state-dict, PADDLE-load-rejects.
        """
        if not is_loadable(state_dict, _KEYS, enabled=self._enable):
            return
        check_bool(state_dict["use_dynamic_loss_scaling"], "use_dynamic_loss_scaling")
        check_count(state_dict["incr_count"], "incr_count", low=0)
        check_count(state_dict["decr_count"], "decr_count", low=0)
        scale = scale_as_float(state_dict["scale"], "scale")
        constants = {name: state_dict[name] for name in _CONSTANTS}
        rule = rule_with(self._rule, _FIELDS, init_loss_scaling=scale, **constants)
        good_steps, bad_steps = (np.asarray(state_dict[key], np.int32) for key in ("incr_count", "decr_count"))
        state = rule.init(like=HOST)._replace(good_steps=good_steps, bad_steps=bad_steps)
        dynamic = state_dict["use_dynamic_loss_scaling"]
        progress = self._progress if dynamic else self._unscaled_only()
        self._rule, self._state, self._dynamic, self._progress = rule, state, dynamic, progress

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy, without the monitor, and without the call site, which cannot be pickled."""
        return {**self.__dict__, "_updated_at": None, "_monitor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes that `__getstate__` returned; progress is stored under the ids of the copied optimizers."""
        self.__dict__.update(state, _progress={id(progress.optimizer): progress for progress in state["_progress"].values()})

    def _unscaled_only(self) -> dict[int, Progress]:
        """Return the progress of optimizers that were unscaled but not stepped: a fixed scale keeps no other progress."""
        return {key: progress for key, progress in self._progress.items() if progress.stage == UNSCALED}


def _check_enable(value: Any) -> None:
    """Raise a TypeError unless *value* is a bool, with a hint if it is a device, which torch's class takes first."""
    if isinstance(value, str) or type(value).__name__ == "device":
        hint = "This is Paddle's GradScaler; ampscale.torch.GradScaler is torch's, whose first argument is a device"
        raise TypeError(f"enable must be a bool, got {excerpt(value)}. {hint}")
    check_bool(value, "enable")
