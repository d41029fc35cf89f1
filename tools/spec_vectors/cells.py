"""The outputs of the documented training cells over the linear network, call by call, as a file of vectors writes them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ampscale_conformance.model.bits import Bits, arrays
from ampscale_conformance.model.floats import rounded
from ampscale_conformance.oracle.arithmetic import product, total
from ampscale_conformance.oracle.linear_network import loss_of
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.norms import local_norms, norm_dtype, sizes
from ampscale_conformance.oracle.step import Outputs, Training
from ampscale_conformance.oracle.tensors import array, from_numbers, numbers, widen

from .encoding import argument, arguments, number, rule, scalar
from .profiles import constants, fixed
from .replicas import mean


def outputs_of(chapter: str, case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every output of every call of a vector of the kind "step"; a KeyError where the cell is unknown."""
    data = [[Bits.from_json(leaf) for leaf in leaves] for leaves in case["gradients"]]
    cells = {
        "train_step": _train_step,
        "TrainOneStepWithLossScaleCell": _one_step,
        "MFTrainOneStepCell": _mindformers,
        "GradScaler": _grad_scaler,
    }
    return list(cells[case["cell"]](chapter, case, data))


def _train_step(_: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    constants_of, limit = rule(case["rule"]), case.get("max_norm")
    training = _training(case, constants_of, max_norm=None if limit is None else number(limit))
    for leaves in data:
        came = training.step(leaves)
        norm = None if limit is None else scalar(came.global_norm, norm_dtype(came.parameters))
        yield {
            **_common(came),
            "finite": came.finite,
            "applied": came.status == "APPLIED",
            "scale": scalar(came.scale, constants_of.dtype),
            "next_scale": scalar(came.next_scale, constants_of.dtype),
            "learning_rate": scalar(came.learning_rate, "float32"),
            "global_norm": norm,
            "status": came.status,
        }


def _one_step(chapter: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    moves, shape = _scale_sense(chapter, case["scale_sense"])
    training = _training(case, moves, unscaled_to=None)  # MINDSPORE-cell-gradient-dtype
    for leaves in data:
        came = training.step(leaves)
        yield {**_common(came), "overflow": not came.finite, "loss_scale": scalar(came.next_scale, moves.dtype, shape)}


def _grad_scaler(chapter: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    given = arguments(case["arguments"])
    training = _training(case, constants(chapter, "GradScaler", given), unscaled_to=None)
    for leaves in data:
        gradients, finite = training.backward(leaves)
        loss = loss_of(training.optimizer.parameters, leaves)
        came = training.finish(loss, gradients, finite or not given.get("enable", True))  # PADDLE-enable: nothing is checked
        yield {**_common(came), "applied": came.status == "APPLIED", "scale": scalar(came.next_scale, "float32")}


def _mindformers(chapter: str, case: Mapping[str, Any], data: Sequence[list[Bits]]) -> Iterator[dict[str, Any]]:
    given = arguments(case.get("arguments", {}))
    moves, shape = _scale_sense(chapter, case.get("scale_sense", (1.0).hex()))
    clips = given.get("use_clip_grad", False)
    training = _training(case, moves, max_norm=given.get("max_grad_norm", 1.0) if clips else None)
    micro, average = _MicroBatches(given.get("gradient_accumulation_steps", 1)), _Average(training, given.get("ema_decay"))
    for leaves in data:
        rate, loss = training.optimizer.learning_rate, loss_of(training.optimizer.parameters, leaves)
        unscaled, finite = training.backward(leaves)
        own = arrays(unscaled)  # each parameter has a gradient here
        gradients, all_of_them = micro.added(own, finite)
        norm = None
        if gradients is not None:
            came = training.finish(loss, gradients, all_of_them)
            finite, own = came.status == "APPLIED", gradients
            norm = scalar(came.global_norm, norm_dtype(gradients)) if clips else None
            average.move(finite)
        yield {
            "loss": scalar(loss, "float32"),
            "overflow": not finite,
            "loss_scale": scalar(training.machine.point.scale, moves.dtype, shape),
            "learning_rate": scalar(rate, "float32"),
            "global_norm": norm,
            "local_norm": array(norm_dtype(own), local_norms(own)).to_json(),
            "size": array("int64", sizes(own)).to_json(),
            "parameters": [leaf.to_json() for leaf in training.optimizer.parameters],
            "ema_params": [leaf.to_json() for leaf in average.parameters],
        }


class _MicroBatches:
    """MINDFORMERS-accumulation: so many calls are one step, on the mean of their gradients."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self._so_far: list[tuple[list[Bits], bool]] = []

    def added(self, gradients: list[Bits], finite: bool) -> tuple[list[Bits] | None, bool]:
        """The mean and whether all were finite, in the last call of a step; None in those before it."""
        self._so_far.append((gradients, finite))
        if len(self._so_far) < self.calls:
            return None, finite
        batches, flags = zip(*self._so_far, strict=True)
        self._so_far = []
        return mean(batches), all(flags)  # a mean of finite numbers is finite


class _Average:
    """MINDFORMERS-ema: decay * average + (1 - decay) * parameter, after every applied step."""

    def __init__(self, training: Training, decay: float | None) -> None:
        self._training, self._decay = training, decay
        self.parameters = [widen(leaf) for leaf in training.optimizer.parameters]

    def move(self, applied: bool) -> None:
        if applied and self._decay is not None:
            pairs = zip(self.parameters, self._training.optimizer.parameters, strict=True)
            self.parameters = [_between(average, widen(leaf), self._decay) for average, leaf in pairs]


def _between(average: Bits, leaf: Bits, decay: float) -> Bits:
    dtype = average.dtype
    kept, moved = rounded(decay, dtype), rounded(1 - decay, dtype)
    mixed = [
        total([product(kept, old, dtype), product(moved, new, dtype)], dtype)
        for old, new in zip(numbers(average), numbers(leaf), strict=True)
    ]
    return from_numbers(dtype, average.shape, mixed)


def _training(case: Mapping[str, Any], moves: Constants, **settings: Any) -> Training:
    optimizer = arguments({name: value for name, value in case["optimizer"].items() if name != "name"})
    parameters = [Bits.from_json(leaf) for leaf in case["parameters"]]
    return Training(moves, parameters, **optimizer, **settings)


def _scale_sense(chapter: str, said: Any) -> tuple[Constants, tuple[int, ...]]:
    """What moves the scale, and the shape that it is returned in: an update cell moves it, an array or a number is fixed."""
    if isinstance(said, Mapping) and "class" in said:
        return constants(chapter, said["class"], arguments(said["arguments"])), ()
    given = argument(said)
    return (fixed(number(said), given.dtype), given.shape) if isinstance(given, Bits) else (fixed(given), ())


def _common(came: Outputs) -> dict[str, Any]:
    return {"loss": scalar(came.loss, "float32"), "parameters": [leaf.to_json() for leaf in came.parameters]}
