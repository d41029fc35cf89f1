"""
Storage of Paddle's `GradScaler`: the scale, its counts and its constants, with getters, setters and state dicts.

Spec: PADDLE-getters, PADDLE-setters-checked, PADDLE-state-dict, PADDLE-load-state-dict, PADDLE-set-init-loss-scaling.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import presets
from ...core.dtypes import FLOATS
from ...core.validation import check_bool, check_count
from ...parsing import excerpt
from .._arrays import HOST
from .._calls import UNSCALED, UNSCALING, Site
from .._monitor import Monitor
from .._validation import check_keys, is_empty, number_of
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


@dataclass(slots=True)
class Progress:
    """
    Progress of one optimizer between two updates of the scale.

    A scaler sets the stage before it writes, so that no gradient is divided twice after an error between two writes.
    """

    optimizer: Any  # keeps a reference, so that the id is not reused
    site: Site | None  # of the call that the stage results from
    scale: float
    stage: str = UNSCALING
    finite: bool = True

    def __getstate__(self) -> Any:
        """Return the attributes for a copy, without the call site, which cannot be pickled."""
        return None, {**{name: getattr(self, name) for name in self.__slots__}, "site": None}


class StoredScale:
    """Scale, counts and constants of a `GradScaler`. See there for the arguments."""

    def __init__(self, enable: bool, use_dynamic_loss_scaling: bool, decr_count: str, **constants: Any) -> None:
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
        self._rule = rule_with(self._rule, **constants)
        self._state = self._rule.init(like=HOST)
        self._progress: dict[int, Progress] = {}
        self._updated_at: Site | None = None  # call site of the last update()
        self._monitor: Monitor | None = None

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

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy, without the monitor, and without the call site, which cannot be pickled."""
        return {**self.__dict__, "_updated_at": None, "_monitor": None}

    def _unscaled_only(self) -> dict[int, Progress]:
        """Return the progress of optimizers that were unscaled but not stepped, the only progress to keep for a fixed scale."""
        return {key: progress for key, progress in self._progress.items() if progress.stage == UNSCALED}
