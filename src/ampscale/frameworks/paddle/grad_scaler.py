"""Paddle's `GradScaler` for arrays of any supported library."""

import inspect
from contextlib import suppress
from typing import Any

from ... import functional
from ...core.replicas import SINGLE_REPLICA, Communicator, SingleReplica
from ...core.scaling import widened
from ...core.trees import is_array
from ...core.type_names import type_name
from ...core.typing import Array
from ...core.validation import check_methods, check_scalable
from ...parsing import excerpt
from .._calls import OTHER_UNSCALED, PADDLE, PADDLE_FIXED, READY, STEPPED, STEPPING, UNSCALED, UNSCALING, Site, call_site
from .._grad_scaler import Monitor, OptimizerNumbers, Progress, versions_of
from .optimizer_access import checked_gradients, minimize_method, parameters_of, step_method, unscale_gradients
from .stored_scale import StoredScale


class GradScaler(StoredScale):
    """
    Paddle's `paddle.amp.GradScaler`: dynamic loss scaling for hand-written training loops.

    The defaults are those of Paddle 2.2's documentation. Paddle 3.3.1 has others: `presets.paddle` has its numbers.

    Works on arrays of all supported libraries. An optimizer is a `torch.optim.Optimizer`, or any object with a method
    ``step()`` or ``minimize(loss)`` and a list `parameters` of objects that have `value` and `grad`. Gradients are unscaled in
    place; if their arrays are immutable (JAX), each `grad` is replaced. A step requires one host synchronization. The scale
    stays in the range of normal float32 numbers. While one thread trains, other threads may call the getters and `state_dict`.

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
        communicator: Averages gradients before they are unscaled, unless created with ``mean=False``, and combines the flags of
            all ranks; see `ampscale.distributed`.
        monitor: Observes each step: a `diagnostics.Monitor`, or any object with its methods. A copy of the scaler has none.

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
        monitor: Monitor | None = None,
    ) -> None:
        super().__init__(
            enable,
            use_dynamic_loss_scaling,
            decr_count,
            init_loss_scaling=init_loss_scaling,
            incr_ratio=incr_ratio,
            decr_ratio=decr_ratio,
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
        )
        check_methods(communicator, "communicator", "mean", "agree", "check_same")
        self._communicator = communicator
        self._optimizer_numbers = OptimizerNumbers()
        if monitor is not None:
            check_methods(monitor, "monitor", "observe_loss", "begin", "end")
        self._monitor = monitor

    def scale(self, var: Array) -> Array:
        """
        Multiply *var* by the scale; return *var* itself if scaling is disabled.

        Args:
            var: Floating-point or complex array of any shape, usually the loss.

        Returns:
            A new array of the same shape: float32 for a 16-bit *var*, otherwise of the dtype of *var*.

        Raises:
            TypeError: *var* is not an array, or not floating-point or complex.

        Spec: PADDLE-scale, PADDLE-scale-dtype, PADDLE-scale-argument.

        >>> GradScaler(init_loss_scaling=1024.0).scale(np.float16(100.0)).item()
        102400.0
        """
        if not self._enable:
            return var
        if not is_array(var):
            raise TypeError(f"var must be an array, got {excerpt(var)} of type {type_name(var)}")
        check_scalable(var, "var")
        if self._monitor is not None and getattr(var, "requires_grad", True):  # torch: not the loss of an evaluation
            self._monitor.observe_loss(var.detach() if hasattr(var, "detach") else var)
        return functional.scale(widened(var), self.get_loss_scaling())

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
            RuntimeError: Since the last update, the optimizer has stepped, or its unscaling or step was interrupted; or another
                optimizer has been unscaled but not stepped, and the update would discard the flag of that optimizer.
            TypeError: *optimizer* has no parameters, or its `minimize` does not accept these arguments. Nothing was changed.

        Spec: PADDLE-minimize, PADDLE-minimize-skips, PADDLE-minimize-passes, PADDLE-minimize-returns, PADDLE-call-order.
        """
        minimize = minimize_method(optimizer)
        # Reject unsupported arguments before the gradients are unscaled. A compiled function may have no signature.
        with suppress(ValueError):
            inspect.signature(minimize).bind(*args, **kwargs)
        if not self._enable:
            return minimize(*args, **kwargs)
        for other in self._progress.values():
            if self._dynamic and other.optimizer is not optimizer and other.stage == UNSCALED:
                PADDLE.check("minimize", OTHER_UNSCALED, other.site)
        progress = self._start_step(optimizer, "minimize")
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
            RuntimeError: Since the last update, the optimizer has been unscaled or stepped, or its unscaling was interrupted.
            TypeError: *optimizer* has no parameters.
            ValueError: A gradient is read-only. Nothing was changed.

        Spec: PADDLE-unscale, PADDLE-unscale-dtypes, PADDLE-call-order.
        """
        if not self._enable:
            return
        self._check("unscale_", optimizer)
        progress = self._unscale(optimizer, call_site())
        progress.stage = UNSCALED

    def step(self, optimizer: Any) -> bool:
        """
        Unscale the gradients unless `unscale_` did, and step the optimizer if all of them are finite.

        Args:
            optimizer: Optimizer whose parameters have scaled gradients.

        Returns:
            True if the optimizer stepped, or if scaling is disabled.

        Raises:
            RuntimeError: Since the last update, the optimizer has stepped, or its unscaling or step was interrupted.
            TypeError: *optimizer* has no parameters or no method `step`.
            ValueError: A gradient is read-only. Nothing was changed.

        Spec: PADDLE-step, PADDLE-fixed-step, PADDLE-call-order.
        """
        optimizer_step = step_method(optimizer)
        if not self._enable:
            optimizer_step()
            return True
        progress = self._start_step(optimizer, "step")
        if progress.finite:
            optimizer_step()
        self._finish(progress)
        return progress.applied is True

    def update(self) -> None:
        """
        Update the scale once for all steps since the last update: overflows in several of them count as one overflow.

        An interrupted `unscale_` does not count. A fixed scale is unchanged.

        Raises:
            RuntimeError: The scale is dynamic, and since the last update, neither `step` nor `unscale_` has been called, or
                `abandon` has discarded all these calls.

        Spec: PADDLE-update, PADDLE-several-optimizers, PADDLE-update-needs-a-step.
        """
        if not self._enable:
            return
        if not self._dynamic:
            self._progress = self._unscaled_only()
            return
        if not self._progress:
            PADDLE.check("update", READY, self._updated_at)
        steps = [progress for progress in self._progress.values() if progress.stage != UNSCALING]
        state = self._state
        if steps:
            state = self._rule.update(state, all(progress.finite for progress in steps))
        self._state, self._progress, self._updated_at = state, {}, call_site()
        self._report(steps)

    def abandon(self, optimizer: Any = None) -> None:
        """
        Discard the result of `unscale_` instead of stepping: neither an overflow nor a finite step is counted.

        The gradients are left as they are, so compute new ones after ``optimizer.clear_grad()``. Interrupted steps are discarded
        too, but may have changed parameters. If one rank calls this method, all must. It does nothing if nothing was recorded.

        Args:
            optimizer: Optimizer that does not step; by default, every optimizer that has not stepped since the last update.

        Raises:
            RuntimeError: *optimizer* has stepped since the last update.
            TypeError: *optimizer* has no parameters.

        Spec: PADDLE-abandon.

        >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
        >>> optimizer, scaler = ampscale.optimizers.SGD(network, 0.5), GradScaler(init_loss_scaling=2.0**10)
        >>> optimizer.parameters[0].grad = scaler.scale(np.float32([2e9, 4e9]))
        >>> scaler.unscale_(optimizer)
        >>> if 1e6 < float(ampscale.global_norm(optimizer.parameters[0].grad)) < np.inf:  # not an overflow, which `step` skips
        ...     scaler.abandon(optimizer)
        """
        if not self._enable:
            return
        if optimizer is None:
            self._progress = {key: progress for key, progress in self._progress.items() if progress.stage == STEPPED}
            return
        parameters_of(optimizer)
        self._check("abandon(optimizer)", optimizer)
        self._progress.pop(id(optimizer), None)

    def _check(self, call: str, optimizer: Any) -> Progress | None:
        """Return the progress of *optimizer*, or None. Raise a RuntimeError if *call* is out of order."""
        progress = self._progress.get(id(optimizer))
        if progress is not None:
            table = PADDLE if self._dynamic else PADDLE_FIXED
            table.check(call, progress.stage, progress.site)
        return progress

    def _start_step(self, optimizer: Any, call: str) -> Progress:
        """Unscale and check the gradients of *optimizer* unless `unscale_` did, and return its `Progress` in stage `STEPPING`."""
        progress = self._check(call, optimizer)
        site = call_site()
        if progress is None:
            progress = self._unscale(optimizer, site)
        progress.site, progress.stage = site, STEPPING
        return progress

    def _unscale(self, optimizer: Any, site: Site) -> Progress:
        """Unscale and check the gradients of *optimizer*, and return its `Progress`. The caller must set the stage."""
        scale = self.get_loss_scaling()
        gradients = checked_gradients(parameters_of(optimizer), scale)
        if self._monitor is not None:
            self._monitor.begin(_gradients_of(gradients.parameters), scale, optimizer, stale=False, modified=False)
        progress = self._progress[id(optimizer)] = Progress(optimizer, site, scale=scale)
        self._average(optimizer, gradients.parameters)
        finite = unscale_gradients(gradients, scale)
        arrays = [parameter.grad for parameter in gradients.parameters]
        if self._monitor is not None:
            progress.versions = versions_of(_gradients_of(gradients.parameters))
        progress.finite = bool(self._communicator.agree(finite, self._state._asdict(), arrays).finite)
        return progress

    def _average(self, optimizer: Any, parameters: list[Any]) -> None:
        """Replace the gradients of *parameters* by their means over all ranks, if the communicator averages them."""
        if isinstance(self._communicator, SingleReplica):
            return
        self._communicator.check_same(rule=self._rule, optimizer=self._optimizer_numbers.number(self._communicator, optimizer)[0])
        gradients = [parameter.grad for parameter in parameters]  # including None, which ranks compare
        means = self._communicator.mean(gradients)
        if means is not gradients:
            for parameter, mean in zip(parameters, means, strict=True):
                parameter.grad = mean

    def _finish(self, progress: Progress) -> None:
        """Record that the optimizer stepped or was skipped. With a fixed scale, the step ends here, since no update follows."""
        progress.applied = progress.finite
        if self._dynamic:
            progress.stage = STEPPED
        else:
            self._report([self._progress.pop(id(progress.optimizer))])

    def _report(self, steps: list[Progress]) -> None:
        """Report the end of *steps* to the monitor, if there is one."""
        if self._monitor is None:
            return
        next_scale = self.get_loss_scaling()
        for step in steps:
            gradients = _gradients_of(parameters_of(step.optimizer))
            changed = None if step.versions is None else versions_of(gradients) != step.versions
            self._monitor.end(step.scale, next_scale, step.finite, step.applied, gradients, step.optimizer, changed=changed)


def _gradients_of(parameters: list[Any]) -> list[Array]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
