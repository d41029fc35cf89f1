"""
Monitor that receives the steps of a training loop, diagnoses them, and passes them on to sinks.

A loop with functions or cells calls `record`. The `GradScaler` classes take a monitor and call `observe_loss`, `begin` and `end`.
"""

import json
import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from .. import functional
from ..core.scaling import number_host
from ..core.step import StepReport, StepStatus
from ..core.typing import Array, Tree
from ..core.validation import check_bool, check_count, check_methods, check_type
from ..parsing import excerpt
from .clipping import is_close
from .history import Limits
from .measurements import clipping_fields, mean_loss, measured_fields
from .names import check_names, names_of_gradients
from .records import StepRecord, TensorStatistics, has_only_nans, statistics_of
from .sinks import Sink, check_sinks
from .verdicts import Diagnoser, Diagnosis, Verdict, message_with_stall

ON_STALL = ("warn", "raise")
_LIBRARY_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep
CHANGES_TO_CHECK = 8  # number of changes of unscaled gradients in which a second division by the scale must occur
STEPS_AFTER_SKIP = 100  # number of steps that are measured after a skipped step with gradients that do not show the cause


class StalledError(RuntimeError):
    """Error that a `Monitor` with ``on_stall="raise"`` raises if too many steps are skipped."""


class Monitor:
    """
    Observer of the steps of one training run, which diagnoses why steps were skipped.

    Args:
        names: Names of the gradients in their order; or pairs of a name and a parameter, as `named_parameters()` returns. Pairs
            name gradients correctly even if some parameters have no gradient. By default, gradients are numbered.
        diagnose_on_skip: Measure the gradients of skipped steps. With a `GradScaler`, the step after each skipped step is
            measured as well, or the next 100 steps if NaNs may come from clipping, or if *communicator* averaged the gradients.
        measure_every: Measure the gradients of every n-th step of a `GradScaler`; None for no step. `train_step` has the
            argument `measure` instead.
        histogram_every: Measure the exponents of the gradients of every n-th step of a `GradScaler`; None for no step.
        sinks: Receivers of every step, such as `JSONLines`. An error in one is raised after all have received the step.
        on_stall: Reaction to the first step of each stall: "warn" for a RuntimeWarning, "raise" for a `StalledError`, or a
            function that is called with the `Diagnosis`.
        limits: Thresholds of the checks.
        communicator: Communicator of the processes. At every skipped step, they exchange statistics and losses, so that the
            diagnosis names the ranks that were not finite. All ranks need a monitor with the same arguments.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer, rule = ampscale.optimizers.SGD(network, 0.5), ampscale.LossScaleRule()
    >>> state, monitor = ampscale.init_train_state(network.params, optimizer, rule), Monitor()
    >>> state, report = ampscale.train_step(network, optimizer, rule, state, np.float32([1.0, np.nan]))
    >>> monitor.record(report).message
    'the loss was nan before scaling: look for the cause in the inputs or in the forward pass'
    """

    def __init__(
        self,
        names: Iterable[Any] | None = None,
        *,
        diagnose_on_skip: bool = True,
        measure_every: int | None = None,
        histogram_every: int | None = None,
        sinks: Sequence[Sink] = (),
        on_stall: str | Callable[[Diagnosis], Any] = "warn",
        limits: Limits | None = None,
        communicator: Any = None,
    ) -> None:
        check_bool(diagnose_on_skip, "diagnose_on_skip")
        for value, name in ((measure_every, "measure_every"), (histogram_every, "histogram_every")):
            if value is not None:
                check_count(value, name)
        if not (callable(on_stall) or on_stall in ON_STALL):
            raise ValueError(f"on_stall must be one of {list(ON_STALL)} or a function, got {excerpt(on_stall)}")
        self._limits = Limits() if limits is None else limits
        check_type(self._limits, "limits", Limits)
        check_sinks(sinks)
        if communicator is not None:
            check_methods(communicator, "communicator", "exchange")
        self.verdicts: Counter[Verdict] = Counter()  # number of steps with each verdict
        self._names = check_names(names)
        self._diagnose_on_skip = diagnose_on_skip
        self._measure_every, self._histogram_every = measure_every, histogram_every
        self._sinks = list(sinks)
        self._on_stall = on_stall
        self._communicator = communicator
        self._runs: dict[int, _Run] = {}
        self._losses: list[Any] = []  # losses of the current step, which several optimizers can have in common
        self._begun_losses = 0  # number of these losses at the last `begin`
        self._has_ended = False  # True if an optimizer has ended its step, so the next loss belongs to a new step

    def record(self, report: StepReport, backward: Callable[[float], Tree] | None = None) -> Diagnosis:
        """
        Receive the report of `train_step`, or the `last_step` of a cell, and return the diagnosis.

        A micro-batch that does not complete a step is not recorded, but its loss counts for the loss of the step.

        Args:
            report: Report of the step. Its values are copied to the host.
            backward: ``backward(scale) -> gradients``: computes the scaled gradients of this step again. It is called only if the
                step was skipped: with its scale, and with a scale of 1, which shows whether a smaller scale would help.

        Raises:
            TypeError: *report* is not a `StepReport`.
            ValueError: *report* has the values of several steps or ranks, or *backward* returned no gradients.
            StalledError: The run has stalled, and *on_stall* is "raise". The step has been recorded.
        """
        check_type(report, "report", StepReport)
        if report.status.shape:
            shape = tuple(report.status.shape)
            raise ValueError(f"report must be of one step of one rank, got arrays of shape {shape}: record each step separately")
        self.observe_loss(report.loss)
        if int(report.status) == StepStatus.ACCUMULATED:
            return Diagnosis(self._run(self).step, Verdict.HEALTHY, "the call was a micro-batch of this step")
        scale = number_host(report.scale)
        finite = bool(report.finite)
        norm = report.global_norm
        measured: dict[str, Any] = {}
        if report.statistics is not None:
            measured = {"measured_scale": scale, "tensors": statistics_of(report.statistics.tolist())}
        if not finite and self._diagnose_on_skip and backward is not None:
            recomputed = measured_fields(backward(scale), scale)
            if not recomputed["tensors"]:
                raise ValueError("backward must return gradients, got none")
            measured = (measured or recomputed) | {"finite_at_one": bool(functional.all_finite(backward(1.0)))}
        return self._receive(
            self, is_local=True, **measured,
            scale=scale, next_scale=number_host(report.next_scale), finite=finite, applied=bool(report.applied),
            loss=mean_loss(self._losses), norm=None if norm is None else number_host(norm),
        )  # fmt: skip

    def observe_loss(self, loss: Array) -> None:
        """Receive the unscaled loss of the next step, or of one of its micro-batches. Scalers call this method."""
        if self._has_ended:
            self._losses = []
            self._begun_losses = 0
            self._has_ended = False
        self._losses.append(loss)

    def begin(
        self,
        gradients: list[Array],
        scale: Any,
        owner: Any,
        *,
        stale: bool = False,
        modified: bool = False,
        change: float | None = None,
    ) -> None:
        """
        Receive the scaled gradients of an optimizer, before they are averaged and unscaled; scalers call this.

        Args:
            gradients: Scaled gradients.
            scale: Loss scale.
            owner: The optimizer.
            stale: As in `StepRecord`.
            modified: As in `StepRecord`.
            change: As in `StepRecord`.
        """
        run = self._run(owner)
        run.losses = self._losses_at_begin(is_abandoned=bool(run.measured))
        run.names = self._names_of(owner, len(gradients))
        run.measured = {"stale": stale, "modified": modified, "change": change}
        loss_scale = number_host(scale)
        has_histograms = _is_due(run.step, self._histogram_every)
        follows_skip = self._diagnose_on_skip and (run.last_skipped or run.step < run.measured_until)
        is_measured = _is_due(run.step, self._measure_every) or has_histograms or follows_skip
        if is_measured:
            run.measured |= measured_fields(gradients, loss_scale, has_histograms=has_histograms)
        if run.step == 0 and any(getattr(gradient, "_version", 0) for gradient in gradients):
            run.measured["is_original"] = False  # torch counts writes in place, and `modified` is unknown in the first step
        if is_measured or change is not None:
            run.measured |= clipping_fields(gradients, has_norms=change is not None)
        if is_measured or change is not None or run.divisions_to_check:
            run.measured["norm"] = number_host(functional.global_norm(gradients)) / loss_scale

    def end(
        self, scale: Any, next_scale: Any, finite: Any, applied: Any, gradients: list[Array], owner: Any,
        *, changed: bool | None = None,
    ) -> Diagnosis:  # fmt: skip
        """
        Receive the result of a step of an optimizer, and return the diagnosis; scalers call this after updating the scale.

        Args:
            scale: Loss scale of the step.
            next_scale: Loss scale of the next step.
            finite: True if the gradients were finite.
            applied: True if the optimizer stepped.
            gradients: Unscaled gradients, with all changes since the unscaling, such as clipping.
            owner: The optimizer.
            changed: True if there were such changes; None if that is unknown.

        Raises:
            StalledError: The run has stalled, and *on_stall* is "raise". The scaler has been updated.
        """
        run = self._run(owner)
        finite = bool(finite)
        is_local = "tensors" in run.measured
        if not finite and self._diagnose_on_skip and not is_local:
            # A change of the gradients before unscaling is detected from the second step on.
            self._measure_unscaled(run, gradients, is_original=run.step > 0 and changed is False)
        if finite and changed:
            self._check_second_division(run, gradients, number_host(scale))
        loss = mean_loss(run.losses)
        loss_of_all = mean_loss(self._losses)
        if not finite and loss_of_all is not None and not math.isfinite(loss_of_all):
            loss = loss_of_all  # the parameters can also have gradients from the loss of another optimizer
        return self._receive(
            owner, is_local, **run.measured,
            scale=number_host(scale), next_scale=number_host(next_scale), finite=finite, applied=bool(applied), loss=loss,
        )  # fmt: skip

    def close(self) -> None:
        """Close the sinks: all of them, even if one raises an error."""
        _call_all([sink.close for sink in self._sinks])

    def __enter__(self) -> "Monitor":
        """Return the monitor, whose sinks are closed at the end of the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the sinks."""
        self.close()

    def _losses_at_begin(self, *, is_abandoned: bool) -> list[Any]:
        """Return the losses since the last `begin`, or else all losses of the step, which optimizers can have in common."""
        losses = self._losses[self._begun_losses :]
        if is_abandoned:  # the loop began this step of the optimizer before, and did not end it
            self._losses = losses
        self._begun_losses = len(self._losses)
        return list(losses or self._losses)

    def _check_second_division(self, run: "_Run", gradients: list[Array], scale: float) -> None:
        """Record a change of the unscaled gradients only if it is a second division by the scale; clipping is no fault."""
        norm = run.measured.get("norm")
        if norm:
            change = number_host(functional.global_norm(gradients)) / norm
            if is_close(change * scale, 1):
                run.measured["change"] = change
            elif run.divisions_to_check:
                run.divisions_to_check -= 1
        elif run.divisions_to_check is None:
            run.divisions_to_check = CHANGES_TO_CHECK  # so that the next `begin` measures the norm

    def _receive(self, owner: Any, is_local: bool, **fields: Any) -> Diagnosis:
        """
        Receive the fields of a `StepRecord`, and return the diagnosis.

        *is_local* is True if the statistics describe this rank's gradients before they were averaged over all ranks.
        """
        run = self._run(owner)
        communicator = self._communicator
        tensors = fields.get("tensors")
        at_fault: dict[str, Any] = {}  # fields of another rank, which replace those of this one in the diagnosis
        names = run.names or self._names_of(owner, len(tensors or ()))
        if communicator is not None:
            fields["rank"] = getattr(communicator, "rank", None)
            own_tensors = tensors if is_local or not communicator.averages else None
            fields["finite_ranks"], at_fault = self._compare_ranks(own_tensors, fields["loss"], fields["finite"])
        record = StepRecord(run.step, **fields)
        others = [other.diagnoser for other in self._runs.values() if other is not run]
        diagnosis = run.diagnoser.diagnose(replace(record, **at_fault), names, others)
        run.step += 1
        run.last_skipped = not record.finite
        run.measured = {}
        self._has_ended = True
        self.verdicts[diagnosis.verdict] += 1
        _call_all([sink.write for sink in self._sinks], record, diagnosis, names)
        self._report_stall(run, diagnosis)
        return diagnosis

    def _report_stall(self, run: "_Run", diagnosis: Diagnosis) -> None:
        """At the first step of a stall, warn, raise a `StalledError` or call the function *on_stall*."""
        was_stalled = run.stalled
        run.stalled = diagnosis.stall is not None
        if was_stalled or not run.stalled:
            return
        message = f"step {diagnosis.step}: {diagnosis.verdict}: {message_with_stall(diagnosis)}"
        if callable(self._on_stall):
            self._on_stall(diagnosis)
        elif self._on_stall == "raise":
            raise StalledError(message)
        else:
            warnings.warn(message, RuntimeWarning, stacklevel=_level())

    def _measure_unscaled(self, run: "_Run", gradients: list[Array], *, is_original: bool) -> None:
        """Measure the unscaled gradients of a skipped step, and add the statistics to *run* if they can show the cause."""
        statistics = measured_fields(gradients, 1.0) | {"is_original": is_original}
        tensors = statistics["tensors"]
        is_mean = self._communicator is not None and self._communicator.averages
        is_cause_hidden = is_mean or (has_only_nans(tensors) and not is_original)
        run.measured_until = run.step + STEPS_AFTER_SKIP if is_cause_hidden else 0
        # Clipping by a norm of NaN makes all values NaN, and `zero_grad` before `update` makes all finite.
        is_lost = all(tensor.nans == tensor.size for tensor in tensors)
        is_lost |= self._communicator is None and not any(tensor.nonfinite for tensor in tensors)
        if is_original or not is_lost:
            run.measured |= statistics

    def _compare_ranks(
        self, tensors: tuple[TensorStatistics, ...] | None, loss: float | None, finite: bool
    ) -> tuple[tuple[bool, ...] | None, dict[str, Any]]:
        """
        Return, for each rank, True if its gradients were finite; and fields of the first rank at fault, by name.

        All ranks diagnose these fields, so that their diagnoses are equal: a loss that is not finite, with its rank; and, if the
        communicator averages gradients, the statistics. In three cases, the flags are None and there are no statistics: the step
        is finite, a rank has no *tensors*, or all ranks have set their gradients to zero since.
        """
        if finite:
            return None, {}
        rows_of_ranks, losses = self._exchanged(tensors, loss)
        is_at_fault = [value is not None and not math.isfinite(value) for value in losses]
        rank = is_at_fault.index(True) if any(is_at_fault) else None
        at_fault: dict[str, Any] = {} if rank is None else {"rank": rank, "loss": losses[rank]}
        has_nonfinite = any(rows_of_ranks)
        if None in rows_of_ranks or not (self._communicator.averages or has_nonfinite):
            return None, at_fault
        if self._communicator.averages and has_nonfinite:
            at_fault["tensors"] = statistics_of(next(filter(None, rows_of_ranks)))
        return tuple(not rows for rows in rows_of_ranks), at_fault

    def _exchanged(self, tensors: tuple[TensorStatistics, ...] | None, loss: float | None) -> tuple[list[Any], list[Any]]:
        """Return the statistics of each rank, () if all gradients are finite, None if unknown; and the loss of each rank."""
        is_finite = tensors is not None and not any(tensor.nonfinite for tensor in tensors)
        texts = self._communicator.exchange(json.dumps([() if is_finite else tensors, loss]))
        rows_of_ranks, losses = zip(*map(json.loads, texts), strict=True)
        return list(rows_of_ranks), list(losses)

    def _run(self, owner: Any) -> "_Run":
        """Return the run of *owner*, which is created at its first step."""
        if id(owner) not in self._runs:
            self._runs[id(owner)] = _Run(owner, Diagnoser(self._limits))
        return self._runs[id(owner)]

    def _names_of(self, owner: Any, count: int) -> list[str] | None:
        """Return the names of the *count* gradients of *owner*; None if they are unknown."""
        if not isinstance(self._names, dict):
            return self._names
        if owner is self:  # `record` has no optimizer
            return list(self._names.values())
        names = names_of_gradients(self._names, owner)
        return names if len(names) == count else None


@dataclass
class _Run:
    """State of the run of one optimizer, or of a loop without optimizer objects."""

    owner: Any  # keeps a reference, so that the id is not reused
    diagnoser: Diagnoser
    step: int = 0
    last_skipped: bool = False
    measured_until: int = 0  # `begin` measures the gradients of steps before this one, while nothing can have changed them
    stalled: bool = False
    losses: list[Any] = field(default_factory=list)  # losses since the last `begin` of any optimizer, or else of the whole step
    names: list[str] | None = None  # names of the gradients of the current step, which a loop can delete before `end`
    measured: dict[str, Any] = field(default_factory=dict)  # known fields of the `StepRecord` of the current step
    divisions_to_check: int | None = None  # number of changes other than a second division until none is checked; None before


def _is_due(step: int, every: int | None) -> bool:
    """Return True if *step* is one of every n-th steps; *every* is None for no step."""
    return every is not None and step % every == 0


def _call_all(functions: list[Callable[..., object]], *arguments: Any) -> None:
    """Call all *functions* in their order, even if one raises an error."""
    with ExitStack() as calls:
        for function in reversed(functions):  # the stack calls the last one first
            calls.callback(function, *arguments)


def _level() -> int:
    """Return the `stacklevel` with which a warning of the calling function names the innermost line outside this library."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY_FOLDER):
        frame, level = frame.f_back, level + 1
    return level
