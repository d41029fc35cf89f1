"""Outputs of the documented training cells with the linear network, call by call, in the encoding of the test vectors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ampscale_conformance.model.bits import Bits, arrays
from ampscale_conformance.model.floats import rounded
from ampscale_conformance.oracle.arithmetic import product, total
from ampscale_conformance.oracle.linear_network import loss_of
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.norms import local_norms, norm_dtype
from ampscale_conformance.oracle.step import Outputs, Training
from ampscale_conformance.oracle.tensors import array, computed, from_numbers, numbers

from .encoding import argument, arguments, number, rule, scalar
from .profiles import constants, fixed
from .replicas import mean


def outputs_of(chapter: str, case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return all outputs of each call in a vector of kind "step".

    Raises:
        KeyError: The cell is unknown.
    """
    data = [[Bits.from_json(leaf) for leaf in leaves] for leaves in case["gradients"]]
    cells = {
        "train_step": _train_step,
        "TrainOneStepWithLossScaleCell": _one_step,
        "MFTrainOneStepCell": _mindformers,
        "GradScaler": _grad_scaler,
    }
    return list(cells[case["cell"]](chapter, case, data))


def _train_step(_: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    scaler = rule(case["rule"])
    limit = case.get("max_norm")
    training = _training(case, scaler, max_norm=None if limit is None else number(limit))
    for leaves in data:
        outputs = training.step(leaves)
        norm = None if limit is None else scalar(outputs.global_norm, norm_dtype(outputs.parameters))
        yield {
            **_common(outputs),
            "finite": outputs.finite,
            "applied": outputs.status == "APPLIED",
            "scale": scalar(outputs.scale, scaler.dtype),
            "next_scale": scalar(outputs.next_scale, scaler.dtype),
            "learning_rate": scalar(outputs.learning_rate, "float32"),
            "global_norm": norm,
            "status": outputs.status,
        }


def _one_step(chapter: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    scaler, shape = _scale_sense(chapter, case["scale_sense"])
    training = _training(case, scaler, unscaled_to=None)  # MINDSPORE-cell-gradient-dtype
    for leaves in data:
        outputs = training.step(leaves)
        loss_scale = scalar(outputs.next_scale, scaler.dtype, shape)
        yield {**_common(outputs), "overflow": not outputs.finite, "loss_scale": loss_scale}


def _grad_scaler(chapter: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    settings = arguments(case["arguments"])
    training = _training(case, constants(chapter, "GradScaler", settings), unscaled_to=None)
    for leaves in data:
        gradients, finite = training.backward(leaves)
        loss = loss_of(training.optimizer.parameters, leaves)
        # PADDLE-enable: a disabled scaler does not check the gradients.
        outputs = training.finish(loss, gradients, finite or not settings.get("enable", True))
        yield {**_common(outputs), "applied": outputs.status == "APPLIED", "scale": scalar(outputs.next_scale, "float32")}


def _mindformers(chapter: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    """Yield the outputs of the cell for each micro-batch; only the last one of a batch changes the parameters and the scale."""
    settings = arguments(case.get("arguments", {}))
    scaler, shape = _scale_sense(chapter, case.get("scale_sense", (1.0).hex()))
    clips = settings.get("use_clip_grad", False)
    training = _training(case, scaler, max_norm=settings.get("max_grad_norm", 1.0) if clips else None)
    batches = _MicroBatches(settings.get("gradient_accumulation_steps", 1))
    average = _MovingAverage(training, settings.get("ema_decay"))
    for leaves in data:
        rate = training.optimizer.learning_rate
        loss = loss_of(training.optimizer.parameters, leaves)
        unscaled, finite = training.backward(leaves)
        gradients = arrays(unscaled)  # the linear network has a gradient for each parameter
        mean_gradients, all_are_finite = batches.add(gradients, finite)
        norm = None
        if mean_gradients is not None:
            outputs = training.finish(loss, mean_gradients, all_are_finite)
            finite = outputs.status == "APPLIED"
            gradients = mean_gradients
            norm = scalar(outputs.global_norm, norm_dtype(gradients)) if clips else None
            average.update(finite)
        yield {
            "loss": scalar(loss, "float32"),
            "overflow": not finite,
            "loss_scale": scalar(training.machine.point.scale, scaler.dtype, shape),
            "learning_rate": scalar(rate, "float32"),
            "global_norm": norm,
            "local_norm": array(norm_dtype(gradients), local_norms(gradients)).to_json(),
            "size": array("int64", [len(leaf.bits) for leaf in gradients]).to_json(),
            "parameters": [leaf.to_json() for leaf in training.optimizer.parameters],
            "ema_params": [leaf.to_json() for leaf in average.parameters],
        }


class _MicroBatches:
    """Accumulated gradients of *calls* micro-batches, whose mean is the gradient of one step: MINDFORMERS-accumulation."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self._batches: list[tuple[list[Bits], bool]] = []

    def add(self, gradients: list[Bits], finite: bool) -> tuple[list[Bits] | None, bool]:
        """Return the mean, and True if all micro-batches are finite; before the last call of a step, return None and *finite*."""
        self._batches.append((gradients, finite))
        if len(self._batches) < self.calls:
            return None, finite
        batches, flags = zip(*self._batches, strict=True)
        self._batches = []
        return mean(batches), all(flags)  # a mean of finite numbers is finite


class _MovingAverage:
    """Exponential moving average: decay * average + (1 - decay) * parameter after each applied step: MINDFORMERS-ema."""

    def __init__(self, training: Training, decay: float | None) -> None:
        self._training, self._decay = training, decay
        self.parameters = [_widened(leaf) for leaf in training.optimizer.parameters]

    def update(self, applied: bool) -> None:
        if applied and self._decay is not None:
            pairs = zip(self.parameters, self._training.optimizer.parameters, strict=True)
            self.parameters = [_interpolated(average, _widened(leaf), self._decay) for average, leaf in pairs]


def _widened(leaf: Bits) -> Bits:
    """Return the same numbers in float32; a wider or a complex array is unchanged."""
    return computed(leaf, 1.0, "float32", product)


def _interpolated(average: Bits, leaf: Bits, decay: float) -> Bits:
    dtype = average.dtype
    old_weight, new_weight = rounded(decay, dtype), rounded(1 - decay, dtype)
    values = [
        total([product(old_weight, old, dtype), product(new_weight, new, dtype)], dtype)
        for old, new in zip(numbers(average), numbers(leaf), strict=True)
    ]
    return from_numbers(dtype, average.shape, values)


def _training(case: Mapping[str, Any], scaler: Constants, **settings: Any) -> Training:
    optimizer = arguments({name: value for name, value in case["optimizer"].items() if name != "name"})
    parameters = [Bits.from_json(leaf) for leaf in case["parameters"]]
    return Training(scaler, parameters, **optimizer, **settings)


def _scale_sense(chapter: str, encoded: Any) -> tuple[Constants, tuple[int, ...]]:
    """Return the constants of a `scale_sense`, and the shape of the returned scale. An array or a number is a constant scale."""
    if isinstance(encoded, Mapping) and "class" in encoded:
        return constants(chapter, encoded["class"], arguments(encoded["arguments"])), ()
    value = argument(encoded)
    return (fixed(number(encoded), value.dtype), value.shape) if isinstance(value, Bits) else (fixed(value), ())


def _common(outputs: Outputs) -> dict[str, Any]:
    return {"loss": scalar(outputs.loss, "float32"), "parameters": [leaf.to_json() for leaf in outputs.parameters]}
