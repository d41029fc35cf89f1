"""Reports of torch's `GradScaler` to its monitor, and the version counters that detect changed gradients."""

from collections.abc import Callable
from math import inf
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.weak import WeakIdRef

from ...core.typing import Flag
from ...core.validation import check_methods
from .._calls import STEPPED
from .._grad_scaler import Monitor, Progress, versions_of
from .optimizer_step import Gradients, plain_gradients


class Observer:
    """Adapter between a `GradScaler` and its monitor."""

    def __init__(self, monitor: Monitor) -> None:
        check_methods(monitor, "monitor", "observe_loss", "begin", "end")
        self._monitor = monitor
        self._samples: WeakKeyDictionary[Optimizer, list[_Sample]] = WeakKeyDictionary()

    def observe_loss(self, output: Tensor) -> None:
        """Report a tensor that will be scaled, without its graph; ignore one that has none, such as a loss of an evaluation."""
        if output.requires_grad:
            self._monitor.observe_loss(output.detach())

    def begin(self, optimizer: Optimizer, gradients: Gradients, scale: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Report the scaled gradients of *optimizer*, and return a copy of the scale and the arrays, which `end` will report."""
        scale, arrays = scale.clone(), plain_gradients(optimizer, gradients)
        samples = self._samples.get(optimizer)
        if not samples:  # the first step, or no gradient could be sampled so far
            samples = self._samples[optimizer] = _samples_of(optimizer)
        stale = [sample for sample in samples if sample.is_stale()]  # ask all: the first stale gradient adds a hook
        modified = [sample for sample in samples if sample.is_modified()]
        changes = (sample.change() for sample in modified)
        change = next(filter(None, changes), None)  # skips None, and the 0.0 of a gradient that was set to zero
        self._monitor.begin(arrays, scale, optimizer, stale=bool(stale), modified=bool(modified), change=change)
        for sample in samples:
            sample.reset(measures=bool(modified))
        return scale, arrays

    def mark_used(self, optimizer: Optimizer) -> None:
        """Record the gradients of *optimizer* before a step or when they are abandoned, to detect accumulation into them."""
        for sample in self._samples.get(optimizer, ()):
            sample.mark_used()

    def end(self, steps: list[Progress], next_scale: Tensor) -> None:
        """Report every step that had gradients on any rank."""
        next_scale = next_scale.clone()
        for step in steps:
            if step.scale is not None and step.found_inf is not None:
                changed = versions_of(step.gradients) != step.versions
                self._monitor.end(
                    step.scale, next_scale, _finite(step), step.applied, step.gradients, step.optimizer, changed=changed
                )


class _Sample:
    """
    Record of one gradient's version counter, as a sample of its parameter group.

    Every write in place increments the counter, except a write through `Tensor.data`. A hook reads the counter after each
    accumulation of the gradient. If a process group exists, the counter is also read at the end of the backward pass, because
    DDP writes the mean over the ranks after the hook. After the first step for which the counter shows a stale gradient, norms
    show whether writes that are not counted have changed the gradient: another hook computes the norm before each accumulation.
    """

    def __init__(self, param: Tensor) -> None:
        self._param = param
        self._accumulated: tuple[int, int] | None = None  # id and version of the gradient after its last accumulation
        self._used: tuple[WeakIdRef, int] | None = None  # gradient and version at `mark_used`, or at an accumulation since then
        self._measures = False  # True to record the norm of the gradient after each accumulation
        self._norm: Tensor | None = None  # the last recorded norm
        self._is_stale = False  # True if each accumulation so far was into a used gradient that was not set to zero
        self._checks_norms = False  # True to compare the norm of the used gradient with that at `mark_used`
        self._used_norm: Tensor | None = None  # norm at `mark_used`
        self._is_kept: Tensor | None = None  # result of the comparison before the first accumulation
        self._add_hook(param.register_post_accumulate_grad_hook, _Sample._record_accumulation)

    def is_stale(self) -> bool:
        """Return True if the gradient was neither set to zero nor replaced since it was used."""
        is_stale, is_kept = self._is_stale, self._is_kept
        gradient = self._param.grad
        if self._used is not None and self._accumulated is None:  # no accumulation has decided
            used, version = self._used
            is_stale = gradient is not None and used() is gradient and gradient._version == version
            is_kept = self._has_same_norm(gradient) if is_stale and gradient is not None else None
        if is_stale and not self._checks_norms and self._param.requires_grad:
            self._checks_norms = True
            self._add_hook(self._param.register_hook, _Sample._compare_norms)
        return is_stale and (is_kept is None or bool(is_kept))

    def is_modified(self) -> bool:
        """Return True if the gradient was changed in place or replaced since its last accumulation."""
        gradient = self._param.grad
        return gradient is not None and self._accumulated not in (None, (id(gradient), gradient._version))

    def change(self) -> float | None:
        """Return the norm of the gradient, divided by its norm after the last accumulation; None if unknown."""
        gradient = self._param.grad
        if gradient is None or self._norm is None or not 0 < float(self._norm) < inf:
            return None
        return float(_norm(gradient) / self._norm)

    def reset(self, *, measures: bool) -> None:
        """Discard the record of the accumulations so far. If *measures* is True, record norms from now on."""
        self._accumulated, self._used, self._is_stale = None, None, False
        self._used_norm, self._is_kept = None, None
        self._measures, self._norm = self._measures or measures, None

    def mark_used(self) -> None:
        """Record that the gradient was used. It counts as stale until the next accumulation shows that it was set to zero."""
        gradient = self._param.grad
        self._used = None if gradient is None else (WeakIdRef(gradient), gradient._version)
        self._is_stale = gradient is not None
        self._used_norm = _norm(gradient) if self._checks_norms and gradient is not None else None

    def _add_hook(self, register: Callable[..., Any], method: Callable[["_Sample"], None]) -> None:
        """Register a hook that calls *method*, and that is removed with this object."""
        weak_self = ref(self)

        def hook(_: Tensor) -> None:
            if (sample := weak_self()) is not None:
                method(sample)

        finalize(self, register(hook).remove)

    def _compare_norms(self) -> None:
        """Before the first accumulation into a used gradient, find out if it has been changed."""
        gradient = self._param.grad
        if self._used is not None and self._accumulated is None and gradient is not None:
            self._is_kept = self._has_same_norm(gradient)

    def _has_same_norm(self, gradient: Tensor) -> Tensor:
        """Return a bool on the device: True if the gradient is not zero and, if known, has the norm that it had when used."""
        norm = _norm(gradient)
        return norm.ne(0) & (norm.isnan() | norm.eq(norm if self._used_norm is None else self._used_norm))

    def _record_accumulation(self) -> None:
        gradient = self._param.grad
        if self._used is not None and gradient is not None:
            used, version = self._used
            # Accumulation writes once to the same tensor. Setting the gradient to zero replaces the tensor or writes once more.
            self._is_stale = self._is_stale and used() is gradient and gradient._version == version + 1
            self._used = WeakIdRef(gradient), gradient._version
        self._record()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: queue(self._record))  # runs after the callback that DDP queues during the backward pass

    def _record(self) -> None:
        """Record the version of the gradient and, if required, its norm."""
        gradient = self._param.grad
        self._accumulated = None if gradient is None else (id(gradient), gradient._version)
        if self._measures and gradient is not None:
            self._norm = _norm(gradient)


def _norm(gradient: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(gradient.detach())
    return norm


def _samples_of(optimizer: Optimizer) -> list[_Sample]:
    """Return two samples for each parameter group: its first and its last parameter that can be sampled."""
    groups = [[param for param in group["params"] if _can_be_sampled(param)] for group in optimizer.param_groups]
    return [_Sample(param) for params in groups for param in params[:1] + params[1:][-1:]]


def _can_be_sampled(param: Tensor) -> bool:
    """Return True if the version of the gradient counts all writes. A sparse gradient is replaced, and a DTensor misses some."""
    return type(param.grad) is Tensor and not param.grad.is_sparse and param.is_leaf and param.requires_grad


def _finite(progress: Progress) -> Flag:
    """Return the finite flag of a step: a bool if it is known on the host, otherwise a tensor."""
    if progress.finite is not None:
        return progress.finite
    if progress.stage == STEPPED and isinstance(progress.applied, bool):
        return progress.applied
    return progress.found_inf == 0
