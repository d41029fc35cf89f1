"""Chapter 50, the step: training steps, wrong in one way each."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import Mutant, wrong
from .loop import Loop

_TABLE: list[Mutant] = []


# --- what reaches the parameters ---


@wrong(_TABLE, "STEP-apply", "scaled gradients go into the optimizer, as in a loop without unscaling: Tencent/PatrickStar#65")
class AppliesScaledGradients(Loop):
    def unscaled_in_cell(self, cell: Any, gradient: Any) -> Any:
        return gradient


@wrong(_TABLE, "STEP-apply", "gradients are multiplied by the scaled loss instead of the scale: ooples/AiDotNet#475")
class MultipliesByTheScaledLoss(Loop):
    def apply(self, cell: Any, gradients: Sequence[Any], rate: float) -> None:
        with np.errstate(all="ignore"):
            loss = sum(np.sum(parameter * gradient) for parameter, gradient in zip(cell.parameters, gradients, strict=True))
            super().apply(cell, [gradient * loss for gradient in gradients], rate)


@wrong(_TABLE, "STEP-apply", "a rate that is computed from scaled gradients takes the place of the given one: NVIDIA/apex#1030")
class IgnoresTheLearningRate(Loop):
    def rate(self, cell: Any) -> float:
        return 1.0


@wrong(_TABLE, "STEP-apply", "the kernel knows one dtype, and leaves the gradients of others scaled: Paddle 3.3.1")
class UnscalesFloat32Alone(Loop):
    def unscaled_in_cell(self, cell: Any, gradient: Any) -> Any:
        return super().unscaled_in_cell(cell, gradient) if gradient.dtype == np.float32 else gradient


@wrong(_TABLE, "STEP-apply", "float16 gradients are refused: pytorch/pytorch#74739")
class RefusesFloat16(Loop):
    def backward(self, data: Any, scale: Any) -> Any:
        if data.dtype == np.float16:
            raise ValueError("attempted to unscale float16 gradients")
        return super().backward(data, scale)


@wrong(_TABLE, "STEP-seed", "the scaler moves and the loss is multiplied by what it was built with: pytorch/pytorch#55562")
class SeedsWithTheFirstScale(Loop):
    def backward(self, data: Any, scale: Any) -> Any:
        return super().backward(data, self.first)

    def unscaled_in_cell(self, cell: Any, gradient: Any) -> Any:
        return self.unscaled_leaf(gradient, self.first)

    def create_cell(self, rule: Any, parameters: Sequence[Any], **options: Any) -> Any:
        self.first = rule.init_scale
        return super().create_cell(rule, parameters, **options)


@wrong(_TABLE, "STEP-seed", "without CUDA the scaler turns itself off, and says nothing of it later: pytorch/pytorch#196195")
class DoesNotScale(Loop):
    def backward(self, data: Any, scale: Any) -> Any:
        return np.array(data)

    def unscaled_in_cell(self, cell: Any, gradient: Any) -> Any:
        return gradient


@wrong(_TABLE, "STEP-order", "the scale is updated before the gradients are divided by it: deepspeedai/DeepSpeed#8588")
class UnscalesByTheNextScale(Loop):
    def unscaled_in_cell(self, cell: Any, gradient: Any) -> Any:
        after = copy.copy(cell.scaler)
        self.update(after, bool(self.all_finite([gradient])))
        return self.unscaled_leaf(gradient, after.shown)


# --- what a skipped step leaves alone ---


@wrong(_TABLE, "STEP-skip", "a fused optimizer does not look at found_inf: karpathy/nanoGPT#167", capabilities=())
class AppliesOverflows(Loop):
    def skip(self, cell: Any, gradients: Sequence[Any], rate: float) -> None:
        self.apply(cell, gradients, rate)


@wrong(_TABLE, "STEP-skip", "the update is multiplied by 0 in a skipped step, and 0 times infinity is NaN: allenai/OLMo-core#309")
class MasksByMultiplying(Loop):
    def skip(self, cell: Any, gradients: Sequence[Any], rate: float) -> None:
        with np.errstate(all="ignore"):
            pairs = zip(cell.parameters, gradients, strict=True)
            cell.parameters = [parameter - np.float32(0) * gradient for parameter, gradient in pairs]


@wrong(_TABLE, "STEP-skip", "the overflow is folded into the momentum before the step is discarded: deepspeedai/DeepSpeed#8435")
class SpoilsTheMomentum(Loop):
    def skip(self, cell: Any, gradients: Sequence[Any], rate: float) -> None:
        pairs = zip(cell.velocities, gradients, strict=True)
        cell.velocities = [(cell.momentum * velocity + gradient).astype(velocity.dtype) for velocity, gradient in pairs]


@wrong(
    _TABLE, "STEP-skip", "gradients are zeroed instead of skipping, so that old momentum moves on: facebookresearch/metaseq#115"
)
class StepsWithZeros(Loop):
    def skip(self, cell: Any, gradients: Sequence[Any], rate: float) -> None:
        self.apply(cell, [np.zeros_like(gradient) for gradient in gradients], rate)


@wrong(_TABLE, "STEP-skip", "the scheduler steps also where the optimizer did not: Lightning-AI/pytorch-lightning#18828")
class SchedulesSkippedSteps(Loop):
    def place(self, cell: Any) -> int:
        return int(cell.attempted)


# --- what is told ---


@wrong(_TABLE, "STEP-report", "a skip inside a fused optimizer is not told: huggingface/accelerate#4242")
class TellsEveryStepFinite(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "finite": True})


@wrong(
    _TABLE,
    "STEP-report",
    "overflow is told under the name of its opposite: MindSpore 2.10.0 returns the one, its scaler the other",
)
class TellsOverflowAsFinite(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "finite": not numbers["finite"]})


@wrong(_TABLE, "STEP-report", "the scale is read after the update: the live parameter that MindSpore 2.10.0 returns eagerly")
class TellsTheNextScaleAsUsed(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "scale": numbers["next_scale"]})


@wrong(
    _TABLE, "STEP-report", "the next scale is read before the update, and a log is one step behind: deepspeedai/DeepSpeed#8588"
)
class TellsTheScaleUsedAsNext(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "next_scale": numbers["scale"]})


@wrong(_TABLE, "STEP-report", "the outputs are the live parameters: MindSpore 2.10.0, eager")
class TellsLiveParameters(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        cell.shown = getattr(cell, "shown", [np.array(parameter) for parameter in cell.parameters])
        for shown, parameter in zip(cell.shown, cell.parameters, strict=True):
            shown[...] = parameter
        return {"parameters": cell.shown, **numbers}


@wrong(_TABLE, "STEP-report", "one dict of outputs serves all steps: a log that is written late repeats the last line")
class ReusesItsOutputs(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        cell.kept = getattr(cell, "kept", {})
        cell.kept.update(super().outputs(cell, **numbers))
        return cell.kept


@wrong(_TABLE, "STEP-scale-moves-last", "update is called after applied steps alone: huggingface/transformers#24415")
class UpdatesAfterAppliedStepsAlone(Loop):
    def train_step(self, cell: Any, data: Sequence[Any]) -> Any:
        before = copy.copy(cell.scaler)
        told = super().train_step(cell, data)
        if not told["finite"]:
            cell.scaler = before
        return {**told, "next_scale": self.read_scale(cell.scaler)}


@wrong(_TABLE, "STEP-scale-moves-last", "the step updates, and the loop around it once more: huggingface/accelerate#641")
class UpdatesTwice(Loop):
    def count(self, cell: Any, finite: bool) -> None:
        super().count(cell, finite)
        self.update(cell.scaler, finite)


@wrong(_TABLE, "STEP-loss-unscaled", "the loss that is logged is scaled: meta-pytorch/tnt#354, fastai/fastai#3049")
class TellsTheScaledLoss(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "loss": numbers["loss"] * numbers["scale"]})


@wrong(_TABLE, "STEP-loss-unscaled", "the loss is computed again, after the update: hirofumi0810/neural_sp#136")
class TellsTheLossAfterTheStep(Loop):
    def loss(self, before: Sequence[Any], cell: Any, data: Sequence[Any], finite: bool) -> float:
        return super().loss(cell.parameters, cell, data, finite)


@wrong(_TABLE, "STEP-loss-unscaled", "a skipped step has no loss in the log: deepspeedai/DeepSpeed#931")
class TellsNoLossWhereItSkips(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        told = super().outputs(cell, **numbers)
        return told if numbers["finite"] else {name: value for name, value in told.items() if name != "loss"}


@wrong(_TABLE, "STEP-learning-rate", "the rate is read after the scheduler has stepped: NVIDIA-NeMo/Speech#3293")
class TellsTheNextRate(Loop):
    def told_rate(self, cell: Any, rate: float) -> float:
        return self.rate(cell)


@wrong(_TABLE, "STEP-counters", "the step count of the optimizer goes on in skipped steps: allenai/OLMo-core#309")
class CountsSkippedStepsAsApplied(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "applied": numbers["attempted"]})


@wrong(_TABLE, "STEP-counters", "skipped steps are not counted, and the data loader waits: princeton-vl/RAFT#104")
class LeavesSkippedStepsOut(Loop):
    def outputs(self, cell: Any, **numbers: Any) -> Any:
        return super().outputs(cell, **{**numbers, "attempted": numbers["applied"]})


MUTANTS = tuple(_TABLE)
