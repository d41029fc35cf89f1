"""
Sinks: receivers of the records and diagnoses of a `Monitor`.

Any object with the methods of `Sink` is a sink. The sinks for TensorBoard and Weights & Biases use a writer that the caller
created, so that this module imports neither package.
"""

import logging
from os import fspath
from pathlib import Path
from typing import Any, Protocol

from ..core.rule import LossScaleRule
from ..core.validation import check_methods, check_type
from ..parsing import excerpt
from .float16 import lost_shares
from .records import StepRecord
from .run_files import header_line, step_line
from .verdicts import Diagnosis, Verdict

_EXPECTED = frozenset([Verdict.HEALTHY, Verdict.OCCASIONAL, Verdict.SEARCHING])  # verdicts of a run that goes well


class Sink(Protocol):
    """Receiver of the steps of a run."""

    def write(self, record: StepRecord, diagnosis: Diagnosis, names: list[str] | None) -> None:
        """Receive a step. *names* are the names of the gradients in `record.tensors`; None if they are unknown."""

    def close(self) -> None:
        """Receive the end of the run. By default, do nothing."""


class JSONLines(Sink):
    """
    Sink that writes a run file: a header line, and a line with a JSON object for each step.

    Each line is written immediately, so that other processes can read the file during the run. The file does not distinguish the
    steps of several optimizers: the commands show them as steps of one. They name gradients as in the first step, which can be
    wrong if different gradients are None in later steps, and number them if there are more or fewer.

    Args:
        path: Path of the file; an existing file is replaced.
        rule: Constants of the scaler, for the header.

    Raises:
        OSError: The file cannot be written.

    >>> sink = JSONLines("/dev/null")
    >>> sink.close()
    """

    def __init__(self, path: str | Path, rule: LossScaleRule | None = None) -> None:
        if rule is not None:
            check_type(rule, "rule", LossScaleRule)
        self._file = open(fspath(path), "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._rule = rule
        self._has_header = False

    def write(self, record: StepRecord, diagnosis: Diagnosis, names: list[str] | None) -> None:
        """Write a line."""
        if not self._has_header:
            self._file.write(header_line(self._rule, names))
            self._has_header = True
        self._file.write(step_line(record, None if diagnosis.verdict is Verdict.HEALTHY else diagnosis))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Logging(Sink):
    """
    Sink that logs with Python's `logging`: a line for each diagnosis that is not "healthy", with its numbers as fields.

    The verdicts "occasional" and "searching" have the level INFO unless the run has stalled, and all others WARNING. The
    attribute `ampscale` of a log record is a dict with step, scale, next_scale, verdict, stall and the evidence.

    Args:
        logger: Logger; by default the one with the name "ampscale".

    >>> from ampscale.diagnostics import Monitor
    >>> monitor = Monitor(sinks=[Logging(logging.getLogger("training"))])
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("ampscale")
        check_methods(self._logger, "logger", "log")

    def write(self, record: StepRecord, diagnosis: Diagnosis, names: list[str] | None) -> None:
        """Log a diagnosis that is not "healthy"."""
        if diagnosis.verdict is Verdict.HEALTHY:
            return
        fields: dict[str, Any] = {"step": record.step, "scale": record.scale, "next_scale": record.next_scale}
        fields |= {"verdict": str(diagnosis.verdict), "stall": diagnosis.stall, **diagnosis.evidence}
        level = logging.INFO if diagnosis.verdict in _EXPECTED and diagnosis.stall is None else logging.WARNING
        self._logger.log(level, "step %d: %s: %s", record.step, diagnosis.verdict, diagnosis.message, extra={"ampscale": fields})


class TensorBoard(Sink):
    """
    Sink that writes to TensorBoard: the scalars scale, skipped (0 or 1), loss and norm; and diagnoses as texts.

    For each gradient, the scalar "lost" is the share of the non-zero values that float16 rounds to zero, and "subnormal" is the
    share of those below 2**-14. A diagnosis is written unless its verdict is "healthy".

    Args:
        writer: A `SummaryWriter` of torch or tensorboardX, or any object with `add_scalar`, `add_text` and `flush`.

    >>> from torch.utils.tensorboard import SummaryWriter  # doctest: +SKIP
    >>> sink = TensorBoard(SummaryWriter())  # doctest: +SKIP
    """

    def __init__(self, writer: Any) -> None:
        check_methods(writer, "writer", "add_scalar", "add_text", "flush")
        self._writer = writer

    def write(self, record: StepRecord, diagnosis: Diagnosis, names: list[str] | None) -> None:
        """Add the scalars of a step, and its diagnosis unless it is "healthy"."""
        for name, value in scalars(record, names).items():
            self._writer.add_scalar(f"ampscale/{name}", value, record.step)
        if diagnosis.verdict is not Verdict.HEALTHY:
            self._writer.add_text("ampscale/diagnosis", f"{diagnosis.verdict}: {diagnosis.message}", record.step)

    def close(self) -> None:
        """Flush the writer, which belongs to the caller."""
        self._writer.flush()


class WeightsAndBiases(Sink):
    """
    Sink that logs to Weights & Biases: metrics with the names of `TensorBoard`, and each verdict that is not "healthy".

    Args:
        run: Result of ``wandb.init``, or any object with ``log(dict)``. Steps are logged as the metric "ampscale/step".

    >>> import wandb  # doctest: +SKIP
    >>> sink = WeightsAndBiases(wandb.init(project="digits"))  # doctest: +SKIP
    """

    def __init__(self, run: Any) -> None:
        check_methods(run, "run", "log")
        self._run = run

    def write(self, record: StepRecord, diagnosis: Diagnosis, names: list[str] | None) -> None:
        """Log the scalars of a step, and its verdict unless it is "healthy"."""
        metrics: dict[str, Any] = {f"ampscale/{name}": value for name, value in scalars(record, names).items()}
        if diagnosis.verdict is not Verdict.HEALTHY:
            metrics["ampscale/verdict"] = str(diagnosis.verdict)
        self._run.log({"ampscale/step": record.step, **metrics})


def check_sinks(sinks: Any) -> None:
    """Raise a TypeError unless *sinks* is a list or tuple of sinks."""
    if not isinstance(sinks, list | tuple):
        raise TypeError(f"sinks must be a list or tuple, got {excerpt(sinks)} of type {type(sinks).__name__}")
    for sink in sinks:
        check_methods(sink, "each sink", "write", "close")


def scalars(record: StepRecord, names: list[str] | None = None) -> dict[str, float]:
    """
    Return the numbers of *record* by name, with "lost/NAME" and "subnormal/NAME" for each gradient with non-zero values.

    Without *names*, NAME is the index of the gradient.
    """
    numbers = {"scale": record.scale, "skipped": float(not record.finite), "loss": record.loss, "norm": record.norm}
    values = {name: value for name, value in numbers.items() if value is not None}
    for index, tensor in enumerate(record.tensors or ()):
        if not tensor.is_empty:
            name = names[index] if names else index
            values[f"lost/{name}"], values[f"subnormal/{name}"] = lost_shares([tensor])
    return values
