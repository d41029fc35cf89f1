"""Drop-in replacement for torch's `GradScaler`."""

from collections.abc import Iterator
from sys import modules
from typing import Any

import torch

from ...backends.torch.dtensor import DTENSORS
from ...core.replicas import Communicator
from ...core.trees import map_leaves
from ...core.validation import check_scale_host
from .._calls import READY, STEPPED, STEPPING, TORCH, UNSCALED, Site, call_site
from .._grad_scaler import Monitor, Progress, versions_of
from .agreement import RankAgreement
from .observer import Observer
from .optimizer_step import Gradients, checked_gradients, step_if_finite, to_device, unscale_gradients
from .stored_scale import StoredScale
from .validation import check_device, check_no_closure, check_optimizer, check_output, checked_outputs, normal_scale_as_float

_16_BIT = frozenset([torch.float16, torch.bfloat16])


class GradScaler(StoredScale):
    """
    Drop-in replacement for `torch.amp.GradScaler`, with the same methods and state dicts.

    Works on torch tensors on any number of devices. Gradients are unscaled in place. `step` returns whether the optimizer
    stepped. The scale stays in the range of normal float32 numbers. While one thread trains, other threads may call the getters
    and `state_dict`. If an error interrupts the writing of the scale, all methods that use it raise a RuntimeError until
    `load_state_dict` succeeds. For all differences from torch see spec/deviations.md.

    Args:
        device: Device, or the name of one. It is only validated: the scale is placed on the device of the first scaled tensor.
        init_scale: Initial scale; positive and in the range of normal float32 numbers.
        growth_factor: Factor applied when the scale grows; greater than 1.
        backoff_factor: Factor applied when the scale backs off; in (0, 1).
        growth_interval: Number of consecutive steps with finite gradients after which the scale grows.
        enabled: If False, `scale` returns its argument and `step` only steps the optimizer.
        communicator: Averages gradients before they are unscaled, unless created with ``mean=False`` as DDP requires, and
            combines the flags of all ranks; see `ampscale.distributed`. By default, gradients that are DTensors are checked by
            all ranks of their device meshes together, with a time limit of 60 s, and other gradients by each rank alone.
        monitor: Observes each step: a `diagnostics.Monitor`, or any object with its methods. A copy of the scaler has none.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or *device* is not the name of a device.

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
        monitor: Monitor | None = None,
    ) -> None:
        check_device(device)
        super().__init__(
            enabled,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        self._agreement = RankAgreement(communicator)
        self._observer = None if monitor is None else Observer(monitor)

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
        if type(outputs) is torch.Tensor and self._call_state is READY:  # a shortcut for the usual loss
            check_output(outputs, "outputs")
            return self._scaled(outputs)
        if isinstance(outputs, Iterator):
            outputs = list(outputs)
        tensors = checked_outputs(outputs)
        TORCH.check("scale", self._call_state, self._updated_at)
        if tensors and self._call_state is not READY:
            with torch.inference_mode(False):  # an inference tensor could not be updated outside of inference mode
                state = map_leaves(lambda value: to_device(value, tensors[0].device), self._state)
            self._state, self._call_state = state, READY
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
        if self._call_state is not READY or id(optimizer) in self._progress:  # otherwise, the call is always permitted
            self._check("unscale_", optimizer)
        self._unscale(optimizer, call_site(), UNSCALED)

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
            bool tensor of shape (), and only `bool` or ``if`` on it requires a host synchronization; but with a communicator
            that has read the flag, as those of `ampscale.distributed` do, it is a bool.

        Raises:
            RuntimeError: No tensor has been scaled yet; or there is a closure; or since the last update, the optimizer has
                stepped, or its unscaling or step was interrupted.
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
        progress = self._progress.get(id(optimizer))
        site = call_site()
        if self._call_state is not READY or (progress is not None and progress.stage is not UNSCALED):
            self._check("step", optimizer)
        if progress is None or progress.found_inf is None:  # gradients may have been computed since `unscale_` found none
            progress = self._unscale(optimizer, site, STEPPING)
        else:
            progress.site, progress.stage = site, STEPPING
        if self._observer is not None:
            self._observer.mark_used(optimizer)
        applied = step_if_finite(optimizer, progress.found_inf, args, kwargs, progress.finite)
        progress.applied, progress.stage = applied, STEPPED
        return applied

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """
        Update the scale once for all steps since the last update: overflows in several of them count as one overflow.

        Steps without gradients do not count.

        Args:
            new_scale: If given, set the scale to this number, or to the only element of this tensor, which requires a host
                synchronization. The count of finite steps is kept.

        Raises:
            RuntimeError: No tensor has been scaled yet; or without *new_scale*, neither `step` nor `unscale_` has been called
                since the last update, or `abandon` has discarded all these calls.
            TypeError: *new_scale* is not a number or a float32 or float64 tensor.
            ValueError: *new_scale* is not a positive, normal float32 number of shape () or (1,), or it requires gradients.

        Spec: TORCH-update, TORCH-new-scale, TORCH-several-optimizers.
        """
        if not self._enabled:
            return
        if self._call_state is not READY or (new_scale is None and not self._progress):
            TORCH.check("update()", self._call_state, self._updated_at)
        steps = list(self._progress.values())
        with self._lock:
            if new_scale is None:
                self._update_scale(steps, call_site())
            else:
                check_scale_host(new_scale, "new_scale")
                self._write(normal_scale_as_float(new_scale, "new_scale"), call_site(), self._rule, {})
        if self._observer is not None:
            self._observer.end(steps, self._state.scale)

    def abandon(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """
        Discard the result of `unscale_` instead of stepping: neither an overflow nor a finite step is counted.

        The gradients are left as they are, so compute new ones after ``optimizer.zero_grad()``. Interrupted steps are discarded
        too, but may have changed parameters. If one rank calls this method, all must. It does nothing if nothing was recorded.

        Args:
            optimizer: Optimizer that does not step; by default, every optimizer that has not stepped since the last update.

        Raises:
            RuntimeError: *optimizer* has stepped since the last update.
            TypeError: *optimizer* has no `param_groups`.

        Spec: TORCH-abandon.

        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer, scaler = torch.optim.SGD([weight], lr=0.5), GradScaler("cpu", init_scale=2.0**10)
        >>> scaler.scale(weight.sum() * 1e9).backward()
        >>> scaler.unscale_(optimizer)
        >>> if 1e6 < torch.nn.utils.get_total_norm([weight.grad]) < torch.inf:  # not an overflow, which `step` skips
        ...     scaler.abandon(optimizer)
        ...     optimizer.zero_grad()
        """
        if not self._enabled:
            return
        if optimizer is None:
            TORCH.check("abandon()", self._call_state, self._updated_at)
        else:
            check_optimizer(optimizer)
            self._check("abandon(optimizer)", optimizer)
        for key, progress in list(self._progress.items()):
            if progress.optimizer is optimizer or (optimizer is None and progress.stage != STEPPED):
                if self._observer is not None:
                    self._observer.mark_used(progress.optimizer)
                del self._progress[key]

    def _scaled(self, output: torch.Tensor) -> torch.Tensor:
        if self._observer is not None:
            self._observer.observe_loss(output)
        # Multiply by the scale tensor itself: autograd then raises an error if the scale is updated before the backward pass.
        scale: torch.Tensor = self._state.scale
        if output.device != scale.device:
            scale = to_device(scale, output.device)
        return (output.float() if output.dtype in _16_BIT else output) * scale

    def _check(self, call: str, optimizer: torch.optim.Optimizer) -> None:
        """Raise a RuntimeError if *call* is out of order for *optimizer*."""
        TORCH.check(call, self._call_state, self._updated_at)
        progress = self._progress.get(id(optimizer))
        if progress is not None:
            TORCH.check(call, progress.stage, progress.site)

    def _unscale(self, optimizer: torch.optim.Optimizer, site: Site, stage: str) -> Progress:
        """Unscale and check the gradients of *optimizer*, and return its `Progress`, with *stage* as the stage."""
        grad_enabled = torch.is_grad_enabled()
        try:  # unlike in `torch.no_grad`, an interrupt cannot leave autograd disabled
            torch._C._set_grad_enabled(False)
            gradients = checked_gradients(optimizer, self._state.scale)
            progress = Progress(optimizer, site)
            if self._observer is not None:
                progress.scale, progress.gradients = self._observer.begin(optimizer, gradients, self._state.scale)
            self._progress[id(optimizer)] = progress
            found_inf, finite = self._unscale_and_agree(progress, gradients)
            progress.found_inf, progress.finite, progress.stage = found_inf, finite, stage
        finally:
            torch._C._set_grad_enabled(grad_enabled)
        return progress

    def _unscale_and_agree(self, progress: Progress, gradients: Gradients) -> tuple[torch.Tensor | None, bool | None]:
        """Average and unscale *gradients*; return `found_inf` and `finite` of `Progress`, on which all ranks have agreed."""
        optimizer, scale = progress.optimizer, self._state.scale
        may_agree = self._agreement.is_given or DTENSORS in modules  # without a communicator, only DTensors have ranks
        if may_agree:
            self._agreement.average(optimizer, self._rule)
        found_inf = unscale_gradients(optimizer, gradients, scale, self._scale_lower_bound)
        if self._observer is not None:
            progress.versions = versions_of(progress.gradients)
        if not may_agree:
            return found_inf, None
        # Record no flag before the ranks agree: after an error, no rank updates its scale.
        return self._agreement.found_inf(optimizer, gradients, found_inf, self._state, self._rule)
