"""Chapter 50, the step: training steps, wrong in one way each."""

import copy

import numpy as np

from . import table
from .loop import Loop

_TABLE, wrong = table()


# --- what reaches the parameters ---


@wrong(
    "STEP-apply", "nerfstudio-project/nerfacc#307: the loss is scaled and the step is the optimizer's own, 1024 times too large"
)
class AppliesScaledGradients(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return gradient


@wrong("STEP-apply", "ooples/AiDotNet#475: gradients are multiplied by the scaled loss instead of the scale")
class MultipliesByTheScaledLoss(Loop):
    def apply(self, cell, gradients, rate):
        with np.errstate(all="ignore"):
            loss = sum(np.sum(parameter * gradient) for parameter, gradient in zip(cell.parameters, gradients, strict=True))
            super().apply(cell, [gradient * loss for gradient in gradients], rate)


@wrong("STEP-apply", "NVIDIA/apex#1030: a rate that is computed from scaled gradients takes the place of the given one")
class IgnoresTheLearningRate(Loop):
    def rate(self, cell):
        return 1.0


@wrong("STEP-apply", "Paddle 3.3.1: the kernel knows some dtypes, and leaves the gradients of others scaled")
class UnscalesFloat32Alone(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return super().unscaled_in_cell(cell, gradient) if gradient.dtype == np.float32 else gradient


@wrong("STEP-apply", "pytorch/pytorch#74739: float16 gradients are refused")
class RefusesFloat16(Loop):
    def backward(self, data, scale):
        if data.dtype == np.float16:
            raise ValueError("attempted to unscale float16 gradients")
        return super().backward(data, scale)


@wrong("STEP-seed", "pytorch/pytorch#55562: a captured graph keeps the scale that it was captured with")
class SeedsWithTheFirstScale(Loop):
    def backward(self, data, scale):
        return super().backward(data, self.first)

    def unscaled_in_cell(self, cell, gradient):
        return self.unscaled_leaf(gradient, self.first)

    def create_cell(self, rule, parameters, **options):
        self.first = rule.init_scale
        return super().create_cell(rule, parameters, **options)


@wrong("STEP-seed", "pytorch/pytorch#196195: without CUDA the scaler turns itself off, and says nothing of it later")
class DoesNotScale(Loop):
    def backward(self, data, scale):
        return np.array(data)

    def unscaled_in_cell(self, cell, gradient):
        return gradient


@wrong("STEP-order", "deepspeedai/DeepSpeed#8588: the scale is updated before the gradients are divided by it")
class UpdatesBeforeItUnscales(Loop):
    def unscaled_in_cell(self, cell, gradient):
        after = copy.copy(cell.scaler)
        self.update(after, bool(self.all_finite([gradient])))
        return self.unscaled_leaf(gradient, after.shown)


# --- what a skipped step leaves alone ---


@wrong("STEP-skip", "pytorch/pytorch#95781: a fused optimizer applies what nobody has looked at", capabilities=())
class AppliesOverflows(Loop):
    def skip(self, cell, gradients, rate):
        self.apply(cell, gradients, rate)


@wrong("STEP-skip", "not seen; the update is multiplied by 0 in a skipped step, and 0 times infinity is NaN")
class MasksByMultiplying(Loop):
    def skip(self, cell, gradients, rate):
        with np.errstate(all="ignore"):
            pairs = zip(cell.parameters, gradients, strict=True)
            cell.parameters = [parameter - np.float32(0) * gradient for parameter, gradient in pairs]


@wrong("STEP-skip", "deepspeedai/DeepSpeed#8435: the overflow is folded into the momentum before the step is discarded")
class SpoilsTheMomentum(Loop):
    def skip(self, cell, gradients, rate):
        pairs = zip(cell.velocities, gradients, strict=True)
        cell.velocities = [(cell.momentum * velocity + gradient).astype(velocity.dtype) for velocity, gradient in pairs]


@wrong("STEP-skip", "pytorch/xla#3120: gradients are zeroed instead of skipping, and old momentum moves on")
class StepsWithZeros(Loop):
    def skip(self, cell, gradients, rate):
        self.apply(cell, [np.zeros_like(gradient) for gradient in gradients], rate)


@wrong("STEP-skip", "Lightning-AI/pytorch-lightning#18828: the scheduler steps also where the optimizer did not")
class SchedulesSkippedSteps(Loop):
    def place(self, cell):
        return int(cell.attempted)


# --- what is told ---


@wrong("STEP-report", "huggingface/accelerate#4242: a skip inside a fused optimizer is not told")
class TellsEveryStepFinite(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "finite": True})


@wrong("STEP-report", "not seen; overflow is told under the name of its opposite")
class TellsOverflowAsFinite(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "finite": not numbers["finite"]})


@wrong("STEP-report", "facebookresearch/fairchem#617: the scale is read after the update, and the loss divided by it")
class TellsTheNextScaleAsUsed(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "scale": numbers["next_scale"]})


@wrong("STEP-report", "not seen; the next scale is read before the update")
class TellsTheScaleUsedAsNext(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "next_scale": numbers["scale"]})


@wrong("STEP-report", "MindSpore 2.10.0, eager: what is returned is live, and moves with the next step")
class TellsLiveParameters(Loop):
    def outputs(self, cell, **numbers):
        cell.shown = getattr(cell, "shown", [np.array(parameter) for parameter in cell.parameters])
        for shown, parameter in zip(cell.shown, cell.parameters, strict=True):
            shown[...] = parameter
        return {"parameters": cell.shown, **numbers}


@wrong("STEP-report", "not seen; one dict of outputs serves all steps")
class ReusesItsOutputs(Loop):
    def outputs(self, cell, **numbers):
        cell.kept = getattr(cell, "kept", {})
        cell.kept.update(super().outputs(cell, **numbers))
        return cell.kept


@wrong("STEP-scale-moves-last", "Haian-Jin/LVSM#19: update is called where the step is applied, and there alone")
class UpdatesAfterAppliedStepsAlone(Loop):
    def train_step(self, cell, data):
        before = copy.copy(cell.scaler)
        told = super().train_step(cell, data)
        if not told["finite"]:
            cell.scaler = before
        return {**told, "next_scale": self.read_scale(cell.scaler)}


@wrong(
    "STEP-scale-moves-last",
    "huggingface/accelerate#439, neosr-project/neosr#9: the step updates, and the loop around it once more",
)
class UpdatesTwice(Loop):
    def count(self, cell, finite):
        super().count(cell, finite)
        self.update(cell.scaler, finite)


@wrong("STEP-loss-unscaled", "meta-pytorch/tnt#354, fastai/fastai#3048: the loss that is logged is scaled")
class TellsTheScaledLoss(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "loss": numbers["loss"] * numbers["scale"]})


@wrong("STEP-loss-unscaled", "not seen; the loss is computed again, after the update")
class TellsTheLossAfterTheStep(Loop):
    def loss(self, before, cell, data, finite):
        return super().loss(cell.parameters, cell, data, finite)


@wrong("STEP-loss-unscaled", "deepspeedai/DeepSpeed#931: a skipped step has no loss in the log")
class TellsNoLossWhereItSkips(Loop):
    def outputs(self, cell, **numbers):
        told = super().outputs(cell, **numbers)
        return told if numbers["finite"] else {name: value for name, value in told.items() if name != "loss"}


@wrong("STEP-learning-rate", "not seen; the rate is read after the scheduler has stepped")
class TellsTheNextRate(Loop):
    def told_rate(self, cell, rate):
        return self.rate(cell)


@wrong("STEP-counters", "allenai/OLMo-core#309: the step count goes on in skipped steps, and with it the correction of the bias")
class CountsSkippedStepsAsApplied(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "applied": numbers["attempted"]})


@wrong("STEP-counters", "not seen; skipped steps are not counted, and a data loader that goes by the count repeats itself")
class LeavesSkippedStepsOut(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "attempted": numbers["applied"]})


MUTANTS = tuple(_TABLE)
