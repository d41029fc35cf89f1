"""
Storage of torch's `GradScaler`: the scale, its count and its constants, with getters, setters, state dicts and copies.

Spec: TORCH-getters, TORCH-setters-checked, TORCH-state-dict, TORCH-load-state-dict, TORCH-copies, TORCH-interrupted.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import Any
from weakref import WeakSet

import torch

from ... import presets
from ...core.rule import LossScaleRule
from ...core.trees import map_leaves
from ...core.validation import check_bool, check_count
from .._calls import READY, TORCH, UNPLACED, WRITING, Site
from .._grad_scaler import Progress
from .._validation import MIN_SCALE, is_loadable, rule_with
from .observer import Observer
from .optimizer_step import update_scale
from .validation import normal_scale_as_float, power_of_two_or_zero

_CONSTANTS = ("growth_factor", "backoff_factor", "growth_interval")
_FIELDS = {name: name for name in ("init_scale", *_CONSTANTS)}  # fields of the rule, by the constructor's argument names
_KEYS = ("scale", *_CONSTANTS, "_growth_tracker")

_scalers: "WeakSet[StoredScale]" = WeakSet()


def _replace_locks() -> None:
    """Give each scaler a new lock: in a forked process, the thread that holds the old lock may not exist to release it."""
    for scaler in _scalers:
        scaler._lock = RLock()


with suppress(AttributeError):  # Windows cannot fork
    os.register_at_fork(after_in_child=_replace_locks)


class StoredScale:
    """Scale, count and constants of a `GradScaler`, which documents the arguments."""

    def __init__(self, enabled: bool, **constants: Any) -> None:
        check_bool(enabled, "enabled")
        self._enabled = enabled
        self._rule = rule_with(replace(presets.torch(), min_scale=MIN_SCALE), _FIELDS, **constants)
        with torch.inference_mode(False):  # an inference tensor could not be updated outside of inference mode
            self._state = self._rule.init(like=torch.empty((), device="cpu"))
        # Lower bound of the scale while the scale is known to be a power of two, otherwise 0.0.
        self._least_scale = power_of_two_or_zero(self._rule, self._rule.init_scale)
        self._is_captured = False  # True if a CUDA graph may update the scale without a call of this object
        self._may_exceed_interval = False  # True if the count may exceed `growth_interval`
        self._call_state = UNPLACED
        self._lock = RLock()  # guards the scale and the count
        _scalers.add(self)
        self._progress: dict[int, Progress] = {}
        self._observer: Observer | None = None  # calls the monitor; None in copies of the scaler
        self._updated_at: Site | None = None  # call site of the last update(); None after another call wrote the scale

    def __repr__(self) -> str:
        """Return the scale, which requires a host synchronization, the growth interval and the count of finite steps."""
        if not self._enabled:
            return "GradScaler(enabled=False)"
        with self._lock:
            scale, good_steps = float(self._state.scale), int(self._state.good_steps)
        return f"GradScaler(scale={scale}, growth_interval={self._rule.growth_interval}, good_steps={good_steps})"

    def get_scale(self) -> float:
        """Return the current scale, which requires a host synchronization; 1.0 if scaling is disabled."""
        if not self._enabled:
            return 1.0
        with self._lock:
            TORCH.check("get_scale", self._call_state, self._updated_at)
            scale = float(self._state.scale)
            self._least_scale = scale if self._least_scale else 0.0
        return scale

    def get_growth_factor(self) -> float:
        """Return the factor applied when the scale grows."""
        return self._rule.growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor applied when the scale grows; greater than 1."""
        self._set_rule(growth_factor=new_factor)

    def get_backoff_factor(self) -> float:
        """Return the factor applied when the scale backs off."""
        return self._rule.backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor applied when the scale backs off; in (0, 1)."""
        self._set_rule(backoff_factor=new_factor)

    def get_growth_interval(self) -> int:
        """Return the number of consecutive finite steps after which the scale grows."""
        return self._rule.growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of consecutive finite steps after which the scale grows; at least 1."""
        self._set_rule(growth_interval=new_interval)

    def is_enabled(self) -> bool:
        """Return True if scaling is enabled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, its constants and the count of finite steps under torch's keys; an empty dict if disabled."""
        if not self._enabled:
            return {}
        with self._lock:
            constants = {name: getattr(self._rule, name) for name in _CONSTANTS}
            return {"scale": self.get_scale(), **constants, "_growth_tracker": int(self._state.good_steps)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the state that `state_dict` of this class or of torch's class returned.

        A disabled scaler accepts an empty dict, and warns about any other.

        Args:
            state_dict: Mapping with torch's five keys.

        Raises:
            RuntimeError: *state_dict* is empty, so a disabled scaler returned it.
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.

        Spec: TORCH-load-state-dict, TORCH-load-rejects.
        """
        if not is_loadable(state_dict, _KEYS, enabled=self._enabled):
            return
        scale = normal_scale_as_float(state_dict["scale"], "scale")
        check_count(state_dict["_growth_tracker"], "_growth_tracker", low=0)
        rule = rule_with(self._rule, _FIELDS, **{name: state_dict[name] for name in _CONSTANTS})
        with self._lock:
            self._write(scale, None, rule, self._progress, state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy: its scale is on the host, until the copy scales its first tensor."""
        for progress in self._progress.values():
            TORCH.check("copy", progress.stage, progress.site)
        with self._lock:
            TORCH.check("copy", self._call_state, self._updated_at)
            state = map_leaves(lambda value: value.to("cpu", copy=True), self._state)
            unshared = {"_lock": None, "_updated_at": None, "_observer": None}  # locks and call sites cannot be pickled
            return {**self.__dict__, **unshared, "_state": state, "_progress": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes that `__getstate__` returned, with a new lock, and without a device for the scale."""
        with torch.inference_mode(False):  # as in `__init__`
            scale_and_count = map_leaves(torch.clone, state["_state"])
        self.__dict__.update(state, _state=scale_and_count, _lock=RLock(), _call_state=UNPLACED)
        _scalers.add(self)

    def _update_scale(self, steps: list[Progress], site: Site) -> None:
        """Update the scale for *steps*; steps without gradients do not count."""
        found_inf: list[torch.Tensor] = []
        may_back_off = False
        for progress in steps:  # faster than comprehensions for one step
            if progress.found_inf is not None:
                found_inf.append(progress.found_inf)
            may_back_off |= progress.applied is not True
        factor = self._rule.backoff_factor if may_back_off else 1
        least = self._scale_lower_bound() * factor
        self._call_state, self._updated_at, self._progress = WRITING, site, {}
        self._least_scale = max(least, MIN_SCALE) if least else 0.0  # 0.0 if the scale may not be a power of two
        if found_inf:
            may_undercut = may_back_off and least < MIN_SCALE
            update_scale(self._rule, self._state, found_inf, may_exceed=self._may_exceed_interval, may_undercut=may_undercut)
            self._may_exceed_interval = False
        self._call_state = READY

    def _write(
        self, scale: float, site: Site | None, rule: LossScaleRule, progress: dict[int, Progress], good_steps: int | None = None
    ) -> None:
        """Store the arguments, *good_steps* only if it is given. Tensors are written in place, for captured CUDA graphs."""
        next_call_state = UNPLACED if self._call_state is UNPLACED else READY
        self._call_state, self._updated_at, self._rule, self._progress = WRITING, site, rule, progress
        self._least_scale = power_of_two_or_zero(rule, scale)
        self._state.scale.fill_(scale)
        if good_steps is not None:
            self._may_exceed_interval = True
            self._state.good_steps.fill_(good_steps)
        self._call_state = next_call_state

    def _set_rule(self, **constants: Any) -> None:
        rule = rule_with(self._rule, _FIELDS, **constants)
        with self._lock:
            self._rule, self._least_scale, self._may_exceed_interval = rule, power_of_two_or_zero(rule, self._least_scale), True

    def _scale_lower_bound(self) -> float:
        """
        Return `_least_scale`, but at most `MIN_SCALE` once a CUDA graph was captured, since replays change the scale.

        If this is called during a capture, record that there is one.
        """
        self._is_captured |= self._state.scale.is_cuda and torch.cuda.is_current_stream_capturing()
        return min(self._least_scale, MIN_SCALE) if self._is_captured else self._least_scale
