"""
torch's `GradScaler`.

Spec: spec/profiles/torch.md.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import frexp
from threading import RLock
from typing import Any
from weakref import WeakSet

import torch

from ... import presets
from ...core.rule import LossScaleRule
from ...core.trees import map_leaves
from ...core.validation import check_bool, check_count
from .._progress import Stage, out_of_order
from .._validation import check_keys, is_empty
from .optimizer_step import checked_gradients, move_scale, moved, step_unless_found, unscale_gradients
from .validation import FLOOR, changed, check_device, check_no_closure, check_output, checked_outputs, scale_of

_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
_NARROW = frozenset([torch.float16, torch.bfloat16])


_scalers: "WeakSet[GradScaler]" = WeakSet()


def _free_in_child() -> None:
    """Give each scaler a new lock: in a forked process the thread that held the old one does not run."""
    for scaler in _scalers:
        scaler._whole = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)


class _Place(Enum):
    """Location of the scale; the value completes an error that begins with the name of a method."""

    UNKNOWN = "must follow scale(): nothing has been scaled yet"
    KNOWN = "is allowed"  # on the device of the first scaled tensor
    UNFINISHED = "needs a whole scale, and writing it was interrupted: load a state dict that was saved before"


@dataclass(slots=True)
class _Progress:
    """One optimizer between two updates of the scale."""

    optimizer: torch.optim.Optimizer  # held, so that its id stays its own
    stage: Stage = Stage.UNSCALING
    found: torch.Tensor | None = None  # float32, shape (), beside the scale: 1.0 for an overflow; None without a gradient
    applied: bool | torch.Tensor = False


class GradScaler:
    """
    Scales the loss of a hand-written loop, and skips the steps whose gradients overflowed.

    Args:
        device: A `torch.device`, or its name. The scale itself is held where the first scaled tensor is.
        init_scale: The first scale; positive and finite.
        growth_factor: Multiplies the scale when it grows; above 1.
        backoff_factor: Multiplies the scale when it backs off; in (0, 1).
        growth_interval: Steps with finite gradients in a row that make the scale grow.
        enabled: Whether there is any scaling; if not, `scale` returns its argument and `step` only steps.

    In place of `torch.amp.GradScaler`, with the same methods and state dicts. Gradients are unscaled in place. The scale
    stays within the normal float32 numbers. While one thread steps, any others may call the getters and `state_dict`.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of range, or torch knows no such device.

    Spec: TORCH-parameters, TORCH-checked, TORCH-device, TORCH-never-off.
    """

    def __init__(
        self,
        device: str | torch.device = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        check_device(device)
        check_bool(enabled, "enabled")
        self._enabled = enabled
        self._rule = changed(
            replace(presets.torch(), min_scale=FLOOR),
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        self._state = self._rule.init(like=torch.empty(()))
        self._least = _power(self._rule, self._rule.init_scale)  # where the scale is known to be a power of two: this at least
        self._is_captured = False  # whether a CUDA graph may move the scale, which nobody sees
        self._is_past = False  # whether the count may have passed the interval
        self._place = _Place.UNKNOWN  # until the first scaled tensor says on which device the state shall be
        self._whole = RLock()  # held while the scale and the count are read or written together
        _scalers.add(self)
        self._progress: dict[int, _Progress] = {}

    def scale(self, outputs: Any) -> Any:
        """
        *outputs* times the scale; *outputs* itself where scaling is off.

        Args:
            outputs: Floating-point, any shape: usually the loss. Or several, in tuples, lists and dicts.

        Returns:
            New tensors of the same shapes, in the same containers, a list for an iterator; float32 for 16-bit tensors,
            else their dtype. Gradients flow through.

        Raises:
            TypeError: Something in *outputs* is no tensor, or not floating-point. Nothing has changed then.
        """
        if not self._enabled:
            return outputs
        if type(outputs) is torch.Tensor and self._place is _Place.KNOWN:  # the rest does the same, and asks what there is
            check_output(outputs, "outputs")
            return self._scaled(outputs)
        outputs = list(outputs) if isinstance(outputs, Iterator) else outputs
        tensors = checked_outputs(outputs)
        self._check_whole("scale")
        if tensors and self._place is _Place.UNKNOWN:
            state = map_leaves(lambda value: value.to(tensors[0].device), self._state)
            self._state, self._place = state, _Place.KNOWN
        return map_leaves(self._scaled, outputs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """
        Divides the gradients of *optimizer* by the scale, in place, and checks them; once between two updates.

        Nothing is read on the host.

        Raises:
            RuntimeError: Nothing has been scaled yet; or it has been done since the last update, or was interrupted, or
                the optimizer has stepped.
            TypeError: *optimizer* has no `param_groups`.
            ValueError: A gradient is float16 or cannot be written to. Nothing has changed then.
        """
        if not self._enabled:
            return
        self._check_placed("unscale_")
        if id(optimizer) in self._progress:
            raise out_of_order("unscale_", self._progress[id(optimizer)].stage)
        self._unscaled(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> bool | torch.Tensor:
        """
        Unscales, if `unscale_` has not, and steps if all gradients are finite.

        Args:
            optimizer: Whose parameters to move.
            args: Handed to ``optimizer.step``; no closure.
            kwargs: Handed to ``optimizer.step``; no closure.

        Returns:
            Whether the optimizer stepped: False where it had no gradient, True where scaling is off. For an optimizer
            that skips by itself on its device, as torch's fused ones do, a bool tensor of shape (), and nothing is read
            on the host; for others a bool, at the price of one read.

        Raises:
            RuntimeError: Nothing has been scaled yet; or the optimizer has stepped since the last `update`, or its step
                raised; or there is a closure.
            TypeError, ValueError: As for `unscale_`.
        """
        if not self._enabled:
            optimizer.step(*args, **kwargs)
            return True
        if args or kwargs:
            check_no_closure(args, kwargs)
        self._check_placed("step")
        progress = self._progress.get(id(optimizer))
        if progress is not None and progress.stage is not Stage.UNSCALED:
            raise out_of_order("step", progress.stage)
        if progress is None or progress.found is None:  # gradients may have come since they were looked for
            progress = self._unscaled(optimizer)
        progress.stage = Stage.STEPPING
        progress.applied = applied = step_unless_found(optimizer, progress.found, args, kwargs)
        progress.stage = Stage.STEPPED
        return applied

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """
        Moves the scale, given all steps since the last update: one overflow among them is an overflow.

        Args:
            new_scale: Sets the scale to this number instead, or to the only element of this tensor, which is read on
                the host; the count of finite steps stays.

        Steps without gradients count for nothing.

        Raises:
            RuntimeError: Nothing has been scaled yet; or, without *new_scale*, there has been no step or `unscale_`
                since the last update.
            TypeError: *new_scale* is no number, nor a float32 or float64 tensor.
            ValueError: It is NaN, infinite, zero or negative, or has another shape than () or (1,).
        """
        if not self._enabled:
            return
        self._check_placed("update")
        if new_scale is not None:
            with self._whole:
                self._write(scale_of(new_scale, "new_scale"))
        elif self._progress:
            with self._whole:
                self._move(list(self._progress.values()))
        else:
            raise RuntimeError("update() must follow step() or unscale_(): nothing has been checked since the last update()")

    def get_scale(self) -> float:
        """The present scale, read on the host; 1.0 where scaling is off."""
        if not self._enabled:
            return 1.0
        with self._whole:
            self._check_whole("get_scale")
            scale = float(self._state.scale)
            self._least = scale if self._least else 0.0
        return scale

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._rule.growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets what the scale is multiplied by when it grows; above 1."""
        self._set_rule(growth_factor=new_factor)

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by when it backs off."""
        return self._rule.backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets what the scale is multiplied by when it backs off; in (0, 1)."""
        self._set_rule(backoff_factor=new_factor)

    def get_growth_interval(self) -> int:
        """Finite steps in a row that make the scale grow."""
        return self._rule.growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the finite steps in a row that make the scale grow."""
        self._set_rule(growth_interval=new_interval)

    def is_enabled(self) -> bool:
        """Whether there is any scaling."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on, under torch's keys, as Python numbers; empty where scaling is off."""
        if not self._enabled:
            return {}
        with self._whole:
            return {
                "scale": self.get_scale(),
                "growth_factor": self._rule.growth_factor,
                "backoff_factor": self._rule.backoff_factor,
                "growth_interval": self._rule.growth_interval,
                "_growth_tracker": int(self._state.good_steps),
            }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on where another scaler was when it gave *state_dict*; torch's own state dicts load as well.

        A scaler that is off takes the empty dict, and warns about any other.

        Raises:
            RuntimeError: The dict is empty: a scaler that was off has given it.
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        if not self._enabled:
            if not is_empty(state_dict):
                warnings.warn("this GradScaler is off: the state dict is not used", stacklevel=2)
            return
        if is_empty(state_dict):
            raise RuntimeError("state_dict must not be empty: a GradScaler that is off has given it, and this one is on")
        check_keys(state_dict, _KEYS)
        scale = scale_of(state_dict["scale"], "scale")
        check_count(state_dict["_growth_tracker"], "_growth_tracker", low=0)
        rule = changed(self._rule, **{key: state_dict[key] for key in _KEYS[1:4]})
        with self._whole:
            self._write(scale, rule, state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins on the host, and is placed anew by the first tensor that it scales."""
        if self._progress:
            raise RuntimeError("a GradScaler must not be copied between step() or unscale_() and update(): call update() first")
        with self._whole:
            self._check_whole("copying")
            state = map_leaves(lambda value: value.to("cpu", copy=True), self._state)
            return {**self.__dict__, "_state": state, "_place": _Place.UNKNOWN, "_whole": None}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of the scaler that was copied."""
        self.__dict__.update(state, _whole=RLock())
        _scalers.add(self)

    def _scaled(self, output: torch.Tensor) -> torch.Tensor:
        # A product with the scale itself, so that autograd refuses a backward pass after the scale has moved.
        scale = self._state.scale
        scale = scale if output.device == scale.device else moved(scale, output.device)
        return (output.float() if output.dtype in _NARROW else output) * scale

    def _unscaled(self, optimizer: torch.optim.Optimizer) -> _Progress:
        """Unscale and check the gradients of *optimizer*, and return its progress."""
        scale, least, records = self._state.scale, self._known_least(), torch.is_grad_enabled()
        try:  # as `torch.no_grad` does, but an interrupt cannot leave autograd off
            torch._C._set_grad_enabled(False)
            gradients = checked_gradients(optimizer, scale)
            progress = self._progress[id(optimizer)] = _Progress(optimizer)
            progress.found = unscale_gradients(optimizer, gradients, scale, least=least)
            progress.stage = Stage.UNSCALED
        finally:
            torch._C._set_grad_enabled(records)
        return progress

    def _move(self, done: list[_Progress]) -> None:
        """Update the scale for the optimizers of *done*; those that had gradients count."""
        found = [progress.found for progress in done if progress.found is not None]
        may_fall = any(progress.applied is not True for progress in done)
        least = self._known_least() * (self._rule.backoff_factor if may_fall else 1)
        self._place, self._progress, self._least = _Place.UNFINISHED, {}, least and max(least, FLOOR)
        if found:
            move_scale(self._rule, self._state, found, is_past=self._is_past, may_undercut=may_fall and least < FLOOR)
            self._is_past = False
        self._place = _Place.KNOWN

    def _write(self, scale: float, rule: LossScaleRule | None = None, good_steps: int | None = None) -> None:
        """Set the scale; with *rule*, set all that a state dict holds. The tensors are written in place, for captured graphs."""
        place = self._place if self._place is _Place.UNKNOWN else _Place.KNOWN
        rule, is_past, waiting = (self._rule, self._is_past, {}) if rule is None else (rule, True, self._progress)
        self._place, self._rule, self._is_past, self._progress = _Place.UNFINISHED, rule, is_past, waiting
        self._least = _power(rule, scale)
        self._state.scale.fill_(scale)
        if good_steps is not None:
            self._state.good_steps.fill_(good_steps)
        self._place = place

    def _set_rule(self, **constants: Any) -> None:
        rule = changed(self._rule, **constants)
        with self._whole:
            self._rule, self._least, self._is_past = rule, _power(rule, self._least), True

    def _known_least(self) -> float:
        """As `_least`; no more than the floor where a graph is or was captured, whose replays meet and make other scales."""
        if self._state.scale.is_cuda and torch.cuda.is_current_stream_capturing():
            self._is_captured = True
        return min(self._least, FLOOR) if self._is_captured else self._least

    def _check_placed(self, caller: str) -> None:
        if self._place is not _Place.KNOWN:
            raise RuntimeError(f"{caller}() {self._place.value}")

    def _check_whole(self, caller: str) -> None:
        if self._place is _Place.UNFINISHED:
            raise RuntimeError(f"{caller}() {self._place.value}")


def _power(rule: LossScaleRule, scale: float) -> float:
    """Return *scale* if it is a power of two, and growths and backoffs lead to such; else 0.0."""
    numbers = (scale, rule.growth_factor, rule.backoff_factor)
    return scale if all(frexp(number)[0] == 0.5 for number in numbers) else 0.0
