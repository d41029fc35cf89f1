"""
Drop-in replacement for torch's `GradScaler`.

Spec: spec/profiles/torch.md.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from sys import modules
from threading import RLock
from typing import Any
from weakref import WeakSet

import torch

from ... import presets
from ...backends.torch.dtensor import DTENSORS
from ...core.replicas import Communicator
from ...core.rule import LossScaleRule
from ...core.trees import map_leaves
from ...core.validation import check_bool, check_count
from .._progress import STEPPED, STEPPING, UNSCALED, out_of_order
from .._validation import check_keys, is_empty
from .agreement import RankAgreement
from .optimizer_step import checked_gradients, step_if_finite, to_device, unscale_gradients, update_scale
from .progress import DONE, INTERRUPTED, PENDING, Progress
from .validation import FLOOR, changed, check_device, check_no_closure, check_output, checked_outputs, if_power_of_two, scale_of

_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
_16_BIT = frozenset([torch.float16, torch.bfloat16])

_scalers: "WeakSet[GradScaler]" = WeakSet()


def _replace_locks() -> None:
    """Give each scaler a new lock: in a forked process, a thread that held the old one no longer runs."""
    for scaler in _scalers:
        scaler._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_locks)


class GradScaler:
    """
    Drop-in replacement for `torch.amp.GradScaler`, with the same methods and state dicts.

    Works on torch tensors on any number of devices. Gradients are unscaled in place. `step` returns whether the optimizer
    stepped. The scale stays in the range of normal float32 numbers. While one thread trains, others may call the getters and
    `state_dict`. For all differences from torch see spec/deviations.md.

    Args:
        device: Device or the name of one, such as "cuda" or "cpu". The scale is placed on the device of the first scaled tensor.
        init_scale: Initial scale; positive and in the range of normal float32 numbers.
        growth_factor: Factor applied when the scale grows; greater than 1.
        backoff_factor: Factor applied when the scale backs off; in (0, 1).
        growth_interval: Number of consecutive steps with finite gradients after which the scale grows.
        enabled: If False, `scale` returns its argument and `step` only steps the optimizer.
        communicator: Averages gradients before they are unscaled, unless its `mean` is False as required for DDP, and combines
            the flags of all ranks; see `ampscale.distributed`. By default, gradients that are DTensors are checked by all ranks
            of their device meshes together, with a time limit of 60 s, and others by each rank alone.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or torch does not know the device.

    Spec: TORCH-parameters, TORCH-checked, TORCH-device, TORCH-never-off.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> optimizer, scaler = torch.optim.SGD([weight], lr=0.5), GradScaler("cpu", init_scale=2.0**10)
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.step(optimizer)
    True
    >>> scaler.update()
    >>> weight.tolist(), scaler.get_scale()
    ([0.5, 1.5], 1024.0)
    """

    def __init__(
        self,
        device: str | torch.device = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        communicator: Communicator | None = None,
    ) -> None:
        check_device(device)
        check_bool(enabled, "enabled")
        self._enabled, self._agreement = enabled, RankAgreement(communicator)
        self._rule = changed(
            replace(presets.torch(), min_scale=FLOOR),
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        self._state = self._rule.init(like=torch.empty(()))
        self._least_scale = if_power_of_two(self._rule, self._rule.init_scale)  # lower bound if a power of two, else 0.0
        self._is_captured = False  # True if a CUDA graph may update the scale without a call of this object
        self._may_exceed_interval = False  # True if the count may exceed `growth_interval`
        self._placement, self._lock = PENDING, RLock()  # the lock guards the scale and the count
        _scalers.add(self)
        self._progress: dict[int, Progress] = {}

    def scale(self, outputs: Any) -> Any:
        """
        Multiply *outputs* by the scale; return *outputs* itself if scaling is disabled.

        Args:
            outputs: Floating-point or complex tensor, usually the loss; or several in nested tuples, lists and dicts.

        Returns:
            New tensors of the same shapes in the same containers; an iterator becomes a list. 16-bit tensors become float32;
            other dtypes are kept. Gradients flow through the result.

        Raises:
            TypeError: A value in *outputs* is not a tensor, or not floating-point or complex. Nothing was changed.

        Spec: TORCH-scale, TORCH-scale-dtype, TORCH-scale-containers, TORCH-scale-argument.

        >>> scaler = GradScaler("cpu", init_scale=1024.0)
        >>> scaler.scale([torch.tensor(0.5), torch.tensor(2.0, dtype=torch.bfloat16)])
        [tensor(512.), tensor(2048.)]
        """
        if not self._enabled:
            return outputs
        if type(outputs) is torch.Tensor and self._placement is DONE:  # a shortcut for the usual loss
            check_output(outputs, "outputs")
            return self._scaled(outputs)
        outputs = list(outputs) if isinstance(outputs, Iterator) else outputs
        tensors = checked_outputs(outputs)
        self._check_not_interrupted("scale")
        if tensors and self._placement is PENDING:
            state = map_leaves(lambda value: value.to(tensors[0].device), self._state)
            self._state, self._placement = state, DONE
        return map_leaves(self._scaled, outputs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """
        Divide the gradients of *optimizer* by the scale in place, and check them; at most once between two updates.

        No host synchronization is needed, unless ranks combine their flags.

        Args:
            optimizer: Optimizer whose parameters have scaled gradients.

        Raises:
            RuntimeError: No tensor has been scaled yet; or since the last update, the gradients have been unscaled, unscaling
                them was interrupted, or the optimizer has stepped.
            TypeError: *optimizer* has no `param_groups`.
            ValueError: A gradient is float16 or read-only. Nothing was changed.
            RankError: The ranks have different scales or constants, or a rank does not respond. The scale is unchanged.

        Spec: TORCH-unscale, TORCH-float16, TORCH-call-order.
        """
        if not self._enabled:
            return
        self._check_placed("unscale_")
        if id(optimizer) in self._progress:
            raise out_of_order("unscale_", self._progress[id(optimizer)].stage)
        self._unscale(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> bool | torch.Tensor:
        """
        Unscale the gradients unless `unscale_` did, and step the optimizer if all of them are finite.

        Args:
            optimizer: Optimizer whose parameters have scaled gradients.
            args: Passed to ``optimizer.step``; a closure is not allowed.
            kwargs: Passed to ``optimizer.step``; a closure is not allowed.

        Returns:
            True if the optimizer stepped, or if scaling is disabled; False if it had no gradients. The result is a bool and
            requires one host synchronization. For an optimizer that skips on the device, such as torch's fused ones, it is a
            bool tensor of shape (), and only `bool` or ``if`` on it requires a host synchronization.

        Raises:
            RuntimeError: No tensor has been scaled yet; or there is a closure; or since the last update, the optimizer has
                stepped or its step was interrupted.
            TypeError: *optimizer* has no `param_groups`.
            ValueError: A gradient is float16 or read-only. Nothing was changed.
            RankError: As for `unscale_`.

        Spec: TORCH-step, TORCH-step-returns, TORCH-closure, TORCH-no-gradients, TORCH-call-order.
        """
        if not self._enabled:
            optimizer.step(*args, **kwargs)
            return True
        if args or kwargs:
            check_no_closure(args, kwargs)
        self._check_placed("step")
        progress = self._progress.get(id(optimizer))
        if progress is not None and progress.stage is not UNSCALED:
            raise out_of_order("step", progress.stage)
        if progress is None or progress.found_inf is None:  # gradients may have been computed since `unscale_` found none
            progress = self._unscale(optimizer)
        progress.stage = STEPPING
        progress.applied = applied = step_if_finite(optimizer, progress.found_inf, args, kwargs, progress.finite)
        progress.stage = STEPPED
        return applied

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """
        Update the scale for all steps since the last update: an overflow in one of them counts as one overflow.

        Steps without gradients do not count.

        Args:
            new_scale: If given, set the scale to this number, or to the only element of this tensor, which requires a host
                synchronization. The count of finite steps is kept.

        Raises:
            RuntimeError: No tensor has been scaled yet; or without *new_scale*, neither `step` nor `unscale_` has been called
                since the last update.
            TypeError: *new_scale* is not a number or a float32 or float64 tensor.
            ValueError: *new_scale* is not a positive, finite, normal float32 number, has another shape than () or (1,), or
                requires gradients.

        Spec: TORCH-update, TORCH-new-scale, TORCH-several-optimizers.
        """
        if not self._enabled:
            return
        self._check_placed("update")
        if new_scale is None and not self._progress:
            raise RuntimeError(
                "update() must be called after step() or unscale_(): no gradients have been checked since the last update()"
            )
        with self._lock:
            if new_scale is None:
                self._update_scale(list(self._progress.values()))
            else:
                self._write(scale_of(new_scale, "new_scale"))

    def get_scale(self) -> float:
        """Return the current scale, which requires a host synchronization; 1.0 if scaling is disabled."""
        if not self._enabled:
            return 1.0
        with self._lock:
            self._check_not_interrupted("get_scale")
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
            return {
                "scale": self.get_scale(),
                "growth_factor": self._rule.growth_factor,
                "backoff_factor": self._rule.backoff_factor,
                "growth_interval": self._rule.growth_interval,
                "_growth_tracker": int(self._state.good_steps),
            }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the state that `state_dict` of this class or of torch's returned.

        A disabled scaler accepts an empty dict, and warns about any other.

        Args:
            state_dict: Mapping with torch's five keys.

        Raises:
            RuntimeError: *state_dict* is empty, so a disabled scaler returned it.
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.

        Spec: TORCH-load-state-dict, TORCH-load-rejects.
        """
        if not self._enabled:
            if not is_empty(state_dict):
                warnings.warn("this GradScaler is disabled: the state dict is not used", stacklevel=2)
            return
        if is_empty(state_dict):
            raise RuntimeError("state_dict must not be empty: a disabled GradScaler returned it, but this one is enabled")
        check_keys(state_dict, _KEYS)
        scale = scale_of(state_dict["scale"], "scale")
        check_count(state_dict["_growth_tracker"], "_growth_tracker", low=0)
        rule = changed(self._rule, **{key: state_dict[key] for key in _KEYS[1:4]})
        with self._lock:
            self._write(scale, rule, state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy: its scale is on the host, until the copy scales its first tensor."""
        if self._progress:
            raise RuntimeError("a GradScaler must not be copied between step() or unscale_() and update(): call update() first")
        with self._lock:
            self._check_not_interrupted("copying")
            state = map_leaves(lambda value: value.to("cpu", copy=True), self._state)
            return {**self.__dict__, "_state": state, "_placement": PENDING, "_lock": None}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes that `__getstate__` returned, with a new lock."""
        self.__dict__.update(state, _lock=RLock())
        _scalers.add(self)

    def _scaled(self, output: torch.Tensor) -> torch.Tensor:
        # Multiply by the scale tensor itself: autograd then raises an error if the scale is updated before the backward pass.
        scale = self._state.scale
        scale = scale if output.device == scale.device else to_device(scale, output.device)
        return (output.float() if output.dtype in _16_BIT else output) * scale

    def _unscale(self, optimizer: torch.optim.Optimizer) -> Progress:
        """Unscale and check the gradients of *optimizer*, and return its progress."""
        scale, grad_enabled = self._state.scale, torch.is_grad_enabled()
        try:  # unlike in `torch.no_grad`, an interrupt cannot leave autograd disabled
            torch._C._set_grad_enabled(False)
            gradients = checked_gradients(optimizer, scale)
            progress = self._progress[id(optimizer)] = Progress(optimizer)
            may_agree = self._agreement.is_given or DTENSORS in modules
            if may_agree:
                self._agreement.average(optimizer, gradients, self._rule)
            found_inf, finite = unscale_gradients(optimizer, gradients, scale, self._scale_lower_bound), None
            if may_agree:  # record nothing before the ranks agree: after an error, no rank updates its scale
                found_inf, finite = self._agreement.found_inf(optimizer, gradients, found_inf, self._state, self._rule)
            progress.found_inf, progress.finite, progress.stage = found_inf, finite, UNSCALED
        finally:
            torch._C._set_grad_enabled(grad_enabled)
        return progress

    def _update_scale(self, steps: list[Progress]) -> None:
        """Update the scale for *steps*; those without gradients do not count."""
        found_inf, may_back_off = list[torch.Tensor](), False
        for progress in steps:  # faster than comprehensions for one step
            found_inf += () if progress.found_inf is None else (progress.found_inf,)
            may_back_off |= progress.applied is not True
        least = self._scale_lower_bound() * (self._rule.backoff_factor if may_back_off else 1)
        self._placement, self._progress, self._least_scale = INTERRUPTED, {}, least and max(least, FLOOR)
        if found_inf:
            may_exceed, may_undercut = self._may_exceed_interval, may_back_off and least < FLOOR
            update_scale(self._rule, self._state, found_inf, may_exceed=may_exceed, may_undercut=may_undercut)
            self._may_exceed_interval = False
        self._placement = DONE

    def _write(self, scale: float, rule: LossScaleRule | None = None, good_steps: int | None = None) -> None:
        """Set the scale, and other values of a state dict if given. Tensors are written in place, for captured CUDA graphs."""
        placement = self._placement if self._placement is PENDING else DONE
        rule, may_exceed, progress = (self._rule, self._may_exceed_interval, {}) if rule is None else (rule, True, self._progress)
        self._placement, self._rule, self._progress = INTERRUPTED, rule, progress
        self._may_exceed_interval, self._least_scale = may_exceed, if_power_of_two(rule, scale)
        self._state.scale.fill_(scale)
        if good_steps is not None:
            self._state.good_steps.fill_(good_steps)
        self._placement = placement

    def _set_rule(self, **constants: Any) -> None:
        rule = changed(self._rule, **constants)
        with self._lock:
            self._rule, self._least_scale, self._may_exceed_interval = rule, if_power_of_two(rule, self._least_scale), True

    def _scale_lower_bound(self) -> float:
        """Return `_least_scale`, but at most `FLOOR` once a CUDA graph was captured, since replays change the scale."""
        if self._state.scale.is_cuda and torch.cuda.is_current_stream_capturing():
            self._is_captured = True
        return min(self._least_scale, FLOOR) if self._is_captured else self._least_scale

    def _check_placed(self, caller: str) -> None:
        if self._placement is not DONE:
            raise RuntimeError(f"{caller}() {self._placement.value}")

    def _check_not_interrupted(self, caller: str) -> None:
        if self._placement is INTERRUPTED:
            raise RuntimeError(f"{caller}() {self._placement.value}")
