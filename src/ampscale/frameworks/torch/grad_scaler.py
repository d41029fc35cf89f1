"""
torch's `GradScaler`.

Spec: spec/profiles/torch.md.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import frexp, nextafter
from typing import Any

import torch

from ... import presets
from ...core.dtypes import FLOATS
from ...core.rule import LossScaleRule
from ...core.trees import leaves_with_paths, map_leaves
from ...core.validation import check_bool, check_count, check_number
from .._validation import check_keys, number_of
from .optimizer_step import move_scale, moved, step_unless_found, unscale_gradients

_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
_FLOOR = FLOATS["float32"].smallest_normal
_NARROW = frozenset([torch.float16, torch.bfloat16])


@dataclass(slots=True)
class _Progress:
    """One optimizer between two updates of the scale."""

    optimizer: torch.optim.Optimizer  # held, so that its id stays its own
    found: torch.Tensor | None  # float32, shape (), beside the scale: 1.0 for an overflow; None where there was no gradient
    stepped: bool = False
    applied: bool | torch.Tensor = False


class GradScaler:
    """
    Scales the loss of a hand-written loop, and skips the steps whose gradients overflowed.

    Args:
        device: A device as torch writes it. The scale itself is held where the first scaled tensor is.
        init_scale: The first scale; positive and finite.
        growth_factor: Multiplies the scale when it grows; above 1.
        backoff_factor: Multiplies the scale when it backs off; in (0, 1).
        growth_interval: Steps with finite gradients in a row that make the scale grow.
        enabled: Whether there is any scaling; if not, `scale` returns its argument and `step` only steps.

    In place of `torch.amp.GradScaler`, with the same methods and state dicts. Gradients are unscaled in place. The scale
    stays within the normal float32 numbers.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of range, or torch knows no such device.

    Spec: TORCH-parameters, TORCH-checked, TORCH-device, TORCH-never-off.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _check_device(device)
        check_bool(enabled, "enabled")
        self._enabled = enabled
        self._rule = replace(presets.torch(), min_scale=_FLOOR)
        self._rule = self._changed(
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        self._state = self._rule.init(like=torch.empty(()))
        self._least = self._power(self._rule.init_scale)  # the scale is a power of two, and this at least; 0.0 if not known
        self._is_captured = False  # whether a CUDA graph may move the scale, which nobody sees
        self._is_past = False  # whether the count may have passed the interval
        self._placed = False  # until the first scaled tensor says on which device the state shall be
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
        if type(outputs) is torch.Tensor and self._placed:  # the rest does the same, and asks what there is
            _check_output(outputs, "outputs")
            return self._scaled(outputs)
        outputs = list(outputs) if isinstance(outputs, Iterator) else outputs
        tensors = _checked_outputs(outputs)
        if tensors and not self._placed:
            self._state = map_leaves(lambda value: value.to(tensors[0].device), self._state)
            self._placed = True
        return map_leaves(self._scaled, outputs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """
        Divides the gradients of *optimizer* by the scale, in place, and checks them; once between two updates.

        Nothing is read on the host.

        Raises:
            RuntimeError: Nothing has been scaled yet; or it has been done since the last update, or the optimizer has
                stepped.
            TypeError: *optimizer* has no `param_groups`.
            ValueError: A gradient is float16. Nothing has changed then.
        """
        if not self._enabled:
            return
        self._check_placed("unscale_")
        if id(optimizer) in self._progress:
            done = "has stepped" if self._progress[id(optimizer)].stepped else "has been unscaled"
            raise RuntimeError(f"unscale_() must come once, before step(): this optimizer {done}, and no update() has followed")
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
            RuntimeError: Nothing has been scaled yet; or the optimizer has stepped since the last `update`; or there is
                a closure.
            TypeError, ValueError: As for `unscale_`.
        """
        if not self._enabled:
            optimizer.step(*args, **kwargs)
            return True
        if args or kwargs:
            _check_no_closure(args, kwargs)
        self._check_placed("step")
        progress = self._progress.get(id(optimizer))
        if progress is not None and progress.stepped:
            raise RuntimeError("step() must come once between two update() calls: this optimizer has stepped since the last")
        if progress is None or progress.found is None:  # gradients may have come since they were looked for
            progress = self._unscaled(optimizer)
        progress.applied = step_unless_found(optimizer, progress.found, args, kwargs)
        progress.stepped = True
        return progress.applied

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
            self._set_scale(_scale_of(new_scale, "new_scale"))
        elif self._progress:
            self._move(list(self._progress.values()))
        else:
            raise RuntimeError("update() must follow step() or unscale_(): nothing has been checked since the last update()")
        self._progress = {}

    def get_scale(self) -> float:
        """The present scale, read on the host; 1.0 where scaling is off."""
        if not self._enabled:
            return 1.0
        scale = float(self._state.scale)
        self._least = scale if self._least else 0.0
        return scale

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._rule.growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets what the scale is multiplied by when it grows; above 1."""
        self._rule = self._changed(growth_factor=new_factor)
        self._least = self._least and self._power(self._least)

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by when it backs off."""
        return self._rule.backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets what the scale is multiplied by when it backs off; in (0, 1)."""
        self._rule = self._changed(backoff_factor=new_factor)
        self._least = self._least and self._power(self._least)

    def get_growth_interval(self) -> int:
        """Finite steps in a row that make the scale grow."""
        return self._rule.growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the finite steps in a row that make the scale grow."""
        self._rule = self._changed(growth_interval=new_interval)
        self._is_past = True

    def is_enabled(self) -> bool:
        """Whether there is any scaling."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on, under torch's keys, as Python numbers; empty where scaling is off."""
        if not self._enabled:
            return {}
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
            if state_dict:
                warnings.warn("this GradScaler is off: the state dict is not used", stacklevel=2)
            return
        if state_dict == {}:
            raise RuntimeError("state_dict must not be empty: a GradScaler that is off has given it, and this one is on")
        check_keys(state_dict, _KEYS)
        scale = _scale_of(state_dict["scale"], "scale")
        check_count(state_dict["_growth_tracker"], "_growth_tracker", low=0)
        self._rule = self._changed(**{key: state_dict[key] for key in _KEYS[1:4]})
        self._set_scale(scale)
        self._state.good_steps.fill_(state_dict["_growth_tracker"])
        self._is_past = True

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins on the host, and is placed anew by the first tensor that it scales."""
        if self._progress:
            raise RuntimeError("a GradScaler must not be copied between step() or unscale_() and update(): call update() first")
        state = map_leaves(lambda value: value.to("cpu", copy=True), self._state)
        return {**self.__dict__, "_state": state, "_placed": False}

    def _scaled(self, output: torch.Tensor) -> torch.Tensor:
        # A product with the scale itself, so that autograd refuses a backward pass after the scale has moved.
        scale = self._state.scale
        scale = scale if output.device == scale.device else moved(scale, output.device)
        return (output.float() if output.dtype in _NARROW else output) * scale

    def _unscaled(self, optimizer: torch.optim.Optimizer) -> _Progress:
        """The progress of *optimizer*, whose gradients are unscaled and checked now."""
        found = unscale_gradients(optimizer, self._state.scale, least=self._known_least())
        progress = self._progress[id(optimizer)] = _Progress(optimizer, found)
        return progress

    def _move(self, done: list[_Progress]) -> None:
        """Moves the scale for the optimizers of *done*; those that had gradients count."""
        found = [progress.found for progress in done if progress.found is not None]
        if not found:
            return
        may_fall = any(progress.applied is not True for progress in done)
        least = self._known_least() * (self._rule.backoff_factor if may_fall else 1)
        move_scale(self._rule, self._state, found, is_past=self._is_past, may_undercut=may_fall and least < _FLOOR)
        self._least = least and max(least, _FLOOR)
        self._is_past = False

    def _set_scale(self, scale: float) -> None:
        self._state.scale.fill_(scale)
        self._least = self._power(scale)

    def _power(self, scale: float) -> float:
        """*scale* where it is a power of two, and growths and backoffs lead to such; else 0.0."""
        numbers = (scale, self._rule.growth_factor, self._rule.backoff_factor)
        return scale if all(frexp(number)[0] == 0.5 for number in numbers) else 0.0

    def _known_least(self) -> float:
        """As `_least`; no more than the floor where a graph is or was captured, whose replays meet and make other scales."""
        if self._state.scale.is_cuda and torch.cuda.is_current_stream_capturing():
            self._is_captured = True
        return min(self._least, _FLOOR) if self._is_captured else self._least

    def _check_placed(self, caller: str) -> None:
        if not self._placed:
            raise RuntimeError(f"{caller}() must follow scale(): nothing has been scaled yet")

    def _changed(self, **constants: Any) -> LossScaleRule:
        """The rule with some of its constants changed, after they were checked."""
        if "init_scale" in constants:
            _check_scale(constants["init_scale"], "init_scale")
        if "growth_factor" in constants:
            check_number(constants["growth_factor"], "growth_factor", "a finite number above 1", 1, above=True)
        if "backoff_factor" in constants:
            wanted = "a number above 0 and below 1"
            check_number(constants["backoff_factor"], "backoff_factor", wanted, 0, nextafter(1, 0), above=True)
        return replace(self._rule, **constants)


def _checked_outputs(outputs: Any) -> list[torch.Tensor]:
    """The tensors in *outputs*, which are all floating-point or complex."""
    if outputs is None:
        raise TypeError("outputs must be a tensor, or a tuple, list or dict of tensors, got None")
    found = leaves_with_paths(outputs, "outputs")
    for path, value in found:
        _check_output(value, path)
    return [value for _, value in found]


def _check_output(value: Any, path: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{path} must be a tensor, got {type(value).__name__}")
    if not (value.is_floating_point() or value.is_complex()):
        raise TypeError(f"{path} must be floating-point or complex to be scaled, got {value.dtype}")


def _check_no_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if "closure" in kwargs or any(callable(argument) for argument in args):
        raise RuntimeError(
            "step() must come without a closure, which would compute gradients that were neither unscaled nor checked"
        )


def _check_device(device: Any) -> None:
    if not isinstance(device, str):
        raise TypeError(f"device must be a str such as 'cuda' or 'cpu', got {device!r} of type {type(device).__name__}")
    try:
        torch.device(device)
    except RuntimeError as unknown:
        raise ValueError(f"device must be a device that torch knows, such as 'cuda' or 'cpu', got {device!r}") from unknown


def _scale_of(value: Any, name: str) -> float:
    """The scale that *value* holds: a number, or the only element of a tensor."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise ValueError(f"{name} must not require gradients, got {value!r}")
    scale = number_of(value, name)
    _check_scale(scale, name)
    return scale


def _check_scale(value: Any, name: str) -> None:
    check_number(value, name, "a positive, finite number that is a normal float32", _FLOOR, FLOATS["float32"].largest)
