"""Mutants of chapter 50: training steps."""

import copy
from dataclasses import replace

import numpy as np

from . import table
from .loop import Loop
from .plain import PublishedScalerError, rounded_scalar

_TABLE, breaks = table()


# --- updates of the parameters ---


@breaks("STEP-apply", "nerfstudio-project/nerfacc#307: the optimizer steps without the scaler, 1024 times too far")
class AppliesScaledGradients(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return gradient


@breaks("STEP-apply", "ooples/AiDotNet#475: gradients are multiplied by the scaled loss instead of the scale")
class MultipliesByTheScaledLoss(Loop):
    def apply(self, cell, gradients, rate):
        with np.errstate(all="ignore"):
            loss = sum(np.sum(parameter * gradient) for parameter, gradient in zip(cell.parameters, gradients, strict=True))
            super().apply(cell, [gradient * loss for gradient in gradients], rate)


@breaks("STEP-apply", "NVIDIA/apex#1030: a learning rate that is computed from scaled gradients replaces the given one")
class IgnoresTheLearningRate(Loop):
    def rate(self, cell):
        return 1.0


@breaks("STEP-apply", "Paddle 3.3.1: the kernel supports some dtypes, and leaves gradients of other dtypes scaled")
class UnscalesOnlyFloat32(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return super().unscaled_in_cell(cell, gradient) if gradient.dtype == np.float32 else gradient


@breaks("STEP-apply", "not observed: float32 gradients count as master gradients, which are unscaled already")
class LeavesFloat32Scaled(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return gradient if gradient.dtype == np.float32 else super().unscaled_in_cell(cell, gradient)


@breaks("STEP-apply", "pytorch/pytorch#74739: float16 gradients are rejected")
class RejectsFloat16(Loop):
    def backward(self, data, scale):
        if data.dtype == np.float16:
            raise ValueError("attempted to unscale float16 gradients")
        return super().backward(data, scale)


@breaks("STEP-apply", "planted: the kernel has no branch for bfloat16, whose gradients stay scaled")
class LeavesBfloat16Scaled(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return gradient if gradient.dtype.name == "bfloat16" else super().unscaled_in_cell(cell, gradient)


@breaks("STEP-apply", "planted: the optimizer computes in float32, and converts its results to the dtypes of the parameters")
class UpdatesFloat64InFloat32(Loop):
    def apply(self, cell, gradients, rate):
        dtypes = [parameter.dtype for parameter in cell.parameters]
        cell.parameters = [parameter.astype(np.float32) for parameter in cell.parameters]
        super().apply(cell, gradients, rate)
        cell.parameters = [parameter.astype(dtype) for parameter, dtype in zip(cell.parameters, dtypes, strict=True)]


@breaks("STEP-seed", "pytorch/pytorch#55562: a captured graph keeps the scale that it was captured with")
class SeedsWithTheFirstScale(Loop):
    def backward(self, data, scale):
        return super().backward(data, self.first)

    def unscaled_in_cell(self, cell, gradient):
        return self.unscaled_leaf(gradient, self.first)

    def create_cell(self, rule, parameters, **options):
        self.first = rule.init_scale
        return super().create_cell(rule, parameters, **options)


@breaks("STEP-seed", "pytorch/pytorch#196195: without CUDA the scaler disables itself, and later calls do not warn")
class DoesNotScale(Loop):
    def backward(self, data, scale):
        return np.array(data)

    def unscaled_in_cell(self, cell, gradient):
        return gradient


@breaks("STEP-order", "deepspeedai/DeepSpeed#8588: the scale is updated before the gradients are divided by it")
class UpdatesBeforeItUnscales(Loop):
    def unscaled_in_cell(self, cell, gradient):
        next_scaler = copy.copy(cell.scaler)
        self.update(next_scaler, bool(self.all_finite([gradient])))
        return self.unscaled_leaf(gradient, next_scaler.shown)


# --- changes on a skipped step ---


@breaks("STEP-skip", "pytorch/pytorch#95781: a fused optimizer applies gradients that were not checked", capabilities=())
class AppliesOverflows(Loop):
    def skip(self, cell, gradients, rate):
        self.apply(cell, gradients, rate)


@breaks("STEP-skip", "planted: NaN is found too late, when the optimizer has applied it", capabilities=())
class AppliesNaNs(Loop):
    def skip(self, cell, gradients, rate):
        if any(np.isnan(gradient).any() for gradient in gradients):
            self.apply(cell, gradients, rate)


@breaks("STEP-skip", "not observed: a skipped step multiplies the update by 0, and 0 times infinity is NaN")
class MasksByMultiplying(Loop):
    def skip(self, cell, gradients, rate):
        with np.errstate(all="ignore"):
            pairs = zip(cell.parameters, gradients, strict=True)
            cell.parameters = [parameter - np.float32(0) * gradient for parameter, gradient in pairs]


@breaks("STEP-skip", "deepspeedai/DeepSpeed#8435: the overflow is added to the momentum before the step is discarded")
class AddsTheOverflowToTheMomentum(Loop):
    def skip(self, cell, gradients, rate):
        pairs = zip(cell.velocities, gradients, strict=True)
        cell.velocities = [(cell.momentum * velocity + gradient).astype(velocity.dtype) for velocity, gradient in pairs]


@breaks("STEP-skip", "pytorch/xla#3120: gradients are zeroed instead of skipping, and the old momentum is applied", "torch")
class StepsWithZeros(Loop):
    def skip(self, cell, gradients, rate):
        self.apply(cell, [np.zeros_like(gradient) for gradient in gradients], rate)


@breaks("STEP-skip", "planted: an overflow that leaves the scale at its minimum resets the momentum")
class ResetsTheMomentumAtTheMinimum(Loop):
    def skip(self, cell, gradients, rate):
        if cell.scaler.shown == cell.scaler.rule.min_scale:
            cell.velocities = [np.zeros_like(velocity) for velocity in cell.velocities]


@breaks("STEP-skip", "planted: a skipped step adds zeros, so that -0.0 becomes 0.0")
class AddsZeros(Loop):
    def skip(self, cell, gradients, rate):
        cell.parameters = [parameter + np.zeros_like(parameter) for parameter in cell.parameters]


@breaks("STEP-skip", "Lightning-AI/pytorch-lightning#18828: the scheduler steps even if the optimizer did not")
class SchedulesSkippedSteps(Loop):
    def schedule_index(self, cell):
        return int(cell.attempted)


# --- reported values ---


@breaks("STEP-report", "huggingface/accelerate#4242: a step that a fused optimizer skips is not reported")
class ReportsEveryStepAsFinite(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "finite": True})


@breaks("STEP-report", "not observed: overflow is reported as finite")
class ReportsOverflowAsFinite(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "finite": not numbers["finite"]})


@breaks("STEP-report", "facebookresearch/fairchem#617: the scale is read after the update, and the loss is divided by it")
class ReportsTheNextScaleAsUsed(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "scale": numbers["next_scale"]})


@breaks("STEP-report", "not observed: the next scale is read before the update")
class ReportsTheUsedScaleAsNext(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "next_scale": numbers["scale"]})


@breaks("STEP-report", "MindSpore 2.10.0, eager mode: results are live objects, which the next step changes")
class ReportsLiveParameters(Loop):
    def outputs(self, cell, **numbers):
        cell.shown = getattr(cell, "shown", [np.array(parameter) for parameter in cell.parameters])
        for shown, parameter in zip(cell.shown, cell.parameters, strict=True):
            shown[...] = parameter
        return {"parameters": cell.shown, **numbers}


@breaks("STEP-report", "not observed: one dict of outputs serves all steps")
class ReusesItsOutputs(Loop):
    def outputs(self, cell, **numbers):
        cell.last_outputs = getattr(cell, "last_outputs", {})
        cell.last_outputs.update(super().outputs(cell, **numbers))
        return cell.last_outputs


@breaks("STEP-report", "planted: the scale of a cell does not grow beyond 65536")
class GrowsTo65536(Loop):
    def update(self, handle, finite):
        old = handle.shown
        super().update(handle, finite)
        handle.shown = handle.shown if old > 65536 else min(handle.shown, np.float32(65536))


@breaks("STEP-scale-updated-last", "Haian-Jin/LVSM#19: update is called only if the step is applied")
class UpdatesOnlyAfterAppliedSteps(Loop):
    def train_step(self, cell, data):
        old_scaler = copy.copy(cell.scaler)
        outputs = super().train_step(cell, data)
        if not outputs["finite"]:
            cell.scaler = old_scaler
        return {**outputs, "next_scale": self.read_scale(cell.scaler)}


@breaks(
    "STEP-scale-updated-last",
    "huggingface/accelerate#439, neosr-project/neosr#9: both the step and the loop call update",
)
class UpdatesTwice(Loop):
    def count(self, cell, finite):
        super().count(cell, finite)
        self.update(cell.scaler, finite)


@breaks("STEP-loss-unscaled", "meta-pytorch/tnt#354, fastai/fastai#3048: the scaled loss is logged")
class ReportsTheScaledLoss(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "loss": numbers["loss"] * numbers["scale"]})


@breaks("STEP-loss-unscaled", "not observed: the loss is computed again, after the update")
class ReportsTheLossAfterTheStep(Loop):
    def loss(self, old_parameters, cell, data, finite):
        return super().loss(cell.parameters, cell, data, finite)


@breaks("STEP-loss-unscaled", "deepspeedai/DeepSpeed#931: a skipped step has no loss in the log")
class ReportsNoLossOnASkip(Loop):
    def outputs(self, cell, **numbers):
        outputs = super().outputs(cell, **numbers)
        return outputs if numbers["finite"] else {name: value for name, value in outputs.items() if name != "loss"}


@breaks("STEP-learning-rate", "not observed: the learning rate is read after the scheduler has stepped")
class ReportsTheNextLearningRate(Loop):
    def reported_rate(self, cell, rate):
        return self.rate(cell)


@breaks("STEP-counters", "allenai/OLMo-core#309: skipped steps increase the step count, and so change the bias correction")
class CountsSkippedStepsAsApplied(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "applied": numbers["attempted"]})


@breaks("STEP-counters", "not observed: skipped steps are not counted, and a data loader that uses the count repeats batches")
class OmitsSkippedSteps(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "attempted": numbers["applied"]})


# --- combinations


@breaks(
    "STEP-every-sequence",
    "not observed: an overflow is skipped only if the scale backs off, which hysteresis delays",
    capabilities=(),
)
class SkipsOnlyBackoffs(Loop):
    def skip(self, cell, gradients, rate):
        if not self.backoff_due(cell.scaler, cell.scaler.bad + 1, cell.scaler.since + 1):
            self.apply(cell, gradients, rate)


@breaks("STEP-every-sequence", "not observed: the loss is checked instead of the gradients", capabilities=())
class ChecksTheLoss(Loop):
    def train_step(self, cell, data):
        self.last_loss = self.loss(cell.parameters, cell, data, finite=True)
        return super().train_step(cell, data)

    def finite_in_cell(self, scaled, gradients, norm):
        return bool(np.isfinite(self.last_loss))


@breaks("STEP-every-sequence", "not observed: only the first array is checked")
class ChecksTheFirstArray(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        return bool(self.all_finite(scaled[:1]))


@breaks("STEP-every-sequence", "not observed: a schedule changes the learning rate at most twice")
class StopsTheSchedule(Loop):
    def schedule_index(self, cell):
        return min(int(cell.applied), 2)


@breaks("STEP-every-sequence", "not observed: cells share the optimizer's state if their parameters have the same shapes")
class SharesTheVelocities(Loop):
    def create_cell(self, rule, parameters, **options):
        cell = super().create_cell(rule, parameters, **options)
        self.known = getattr(self, "known", {})
        shared = self.known.setdefault(tuple(parameter.shape for parameter in cell.parameters), cell.velocities)
        cell.velocities = [np.zeros_like(velocity) for velocity in shared]
        self.cells = [*getattr(self, "cells", []), cell]
        return cell

    def apply(self, cell, gradients, rate):
        super().apply(cell, gradients, rate)
        for other in self.cells:
            if [velocity.shape for velocity in other.velocities] == [velocity.shape for velocity in cell.velocities]:
                other.velocities = list(cell.velocities)


@breaks("STEP-every-sequence", "not observed: with momentum, gradients are clipped before the first applied step only")
class ClipsOnlyBeforeTheFirstAppliedStep(Loop):
    def clip(self, cell, gradients, norm):
        if cell.momentum and cell.applied:
            return list(gradients)
        return super().clip(cell, gradients, norm)


@breaks("STEP-every-sequence", "not observed: zero gradients are divided by their norm")
class DividesByAZeroNorm(Loop):
    def coefficient(self, max_norm, norm):
        with np.errstate(all="ignore"):
            return np.float32(min(max_norm, norm)) / np.float32(norm)


@breaks("STEP-every-sequence", "not observed: an epsilon in the square root hides the norm of small gradients")
class AddsAnEpsilonToTheSquares(Loop):
    def euclidean(self, arrays):
        return float(np.sqrt(super().euclidean(arrays) ** 2 + 1e-12))


@breaks("STEP-every-sequence", "MindSpore 2.10.0, eager mode: results are live objects, which the next step changes")
class ReturnsItsArrays(Loop):
    def apply(self, cell, gradients, rate):
        old_parameters = cell.parameters
        super().apply(cell, gradients, rate)
        for parameter, value in zip(old_parameters, cell.parameters, strict=True):
            parameter[...] = value
        cell.parameters = old_parameters

    def outputs(self, cell, **numbers):
        return {"parameters": list(cell.parameters), **numbers}

    def loss(self, old_parameters, cell, data, finite):
        return cell.loss

    def train_step(self, cell, data):
        cell.loss = Loop.loss(self, cell.parameters, cell, data, finite=True)
        return super().train_step(cell, data)


@breaks("STEP-every-sequence", "not observed: the third overflow in a row is applied, so that training does not stop")
class AppliesTheThirdOverflow(Loop):
    def skip(self, cell, gradients, rate):
        cell.skipped = getattr(cell, "skipped", 0) + 1
        if cell.skipped % 3 == 0:
            self.apply(cell, gradients, rate)


@breaks("STEP-every-sequence", "not observed: a loss that is not finite is reported as a finite number")
class ReportsAFiniteLoss(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **{**numbers, "loss": float(np.nan_to_num(numbers["loss"]))})


@breaks("STEP-every-sequence", "planted: velocities are keyed by shape, so that parameters of one shape share a velocity")
class KeysVelocitiesByShape(Loop):
    def apply(self, cell, gradients, rate):
        shared = {velocity.shape: velocity for velocity in cell.velocities}
        cell.velocities = [shared[velocity.shape] for velocity in cell.velocities]
        super().apply(cell, gradients, rate)


@breaks("STEP-every-sequence", "planted: a step whose loss is infinite is skipped, although its gradients are finite")
class ChecksTheLossToo(ChecksTheLoss):
    def finite_in_cell(self, scaled, gradients, norm):
        return Loop.finite_in_cell(self, scaled, gradients, norm) and super().finite_in_cell(scaled, gradients, norm)


@breaks("STEP-every-sequence", "planted: float16 gradients are squared before they are widened, and 512 becomes infinite")
class SquaresInFloat16(Loop):
    def euclidean(self, arrays):
        with np.errstate(all="ignore"):
            infinite = any(array.dtype == np.float16 and np.isinf(array * array).any() for array in arrays)
        return np.inf if infinite else super().euclidean(arrays)


@breaks("STEP-every-sequence", "planted: gradients are multiplied by the reciprocal of the scale", capabilities=("division",))
class MultipliesByTheReciprocal(Loop):
    def quotient(self, part, scale):
        return part * (part.dtype.type(1) / self.scale_for(part, scale))


@breaks("STEP-every-sequence", "planted: a step whose gradients are all zero counts as one without gradients", capabilities=())
class OmitsZeroGradients(Loop):
    def update(self, handle, finite):
        if not getattr(self, "zero", False):
            super().update(handle, finite)

    def train_step(self, cell, data):
        self.zero = not any(value.any() for value in data)
        outputs = super().train_step(cell, data)
        self.zero = False
        return outputs


@breaks("STEP-learning-rate", "planted: learning rates are stored in float16")
class RoundsTheLearningRate(Loop):
    def reported_rate(self, cell, rate):
        return float(np.float16(rate))


@breaks("STEP-seed", "planted: the seed is limited to 2**24, and so is the divisor")
class SeedsWithAtMost2To24(Loop):
    def backward(self, data, scale):
        return super().backward(data, min(scale, np.float32(2.0**24)))

    def unscaled_in_cell(self, cell, gradient):
        return self.unscaled_leaf(gradient, min(cell.scaler.shown, np.float32(2.0**24)))


@breaks("STEP-every-sequence", "planted: gradients below 1e-8 are dropped", capabilities=())
class DropsTinyGradients(Loop):
    def apply(self, cell, gradients, rate):
        super().apply(cell, [np.where(abs(gradient) < 1e-8, 0, gradient) for gradient in gradients], rate)


@breaks("STEP-every-sequence", "planted: gradients of shape () are applied as Python numbers, which are stored in float16")
class AppliesRoundedScalars(Loop):
    def apply(self, cell, gradients, rate):
        super().apply(cell, [*map(rounded_scalar, gradients)], rate)


@breaks("STEP-every-sequence", "planted: a cell updates the arrays that it was created with")
class UpdatesItsGivenArrays(Loop):
    def create_cell(self, rule, parameters, **options):
        cell = super().create_cell(rule, parameters, **options)
        cell.given = parameters
        return cell

    def apply(self, cell, gradients, rate):
        super().apply(cell, gradients, rate)
        for given, parameter in zip(cell.given, cell.parameters, strict=True):
            given[...] = parameter


@breaks("STEP-learning-rate", "planted: the last learning rate of a list is not used")
class OmitsTheLastRate(Loop):
    def schedule_index(self, cell):
        return min(super().schedule_index(cell), max(len(cell.rates) - 2, 0))


@breaks("STEP-every-sequence", "planted: a step whose gradients have no elements does not update the scale", capabilities=())
class OmitsEmptyGradients(OmitsZeroGradients):
    def train_step(self, cell, data):
        self.zero = not any(value.size for value in data)
        outputs = Loop.train_step(self, cell, data)
        self.zero = False
        return outputs


@breaks("STEP-every-sequence", "planted: beside float16 gradients, float32 gradients are not checked", capabilities=("float16",))
class ChecksTheNarrowestDtype(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        narrow = [gradient for gradient in scaled if gradient.dtype == np.float16]
        return super().finite_in_cell(narrow or scaled, narrow or gradients, norm)


@breaks("STEP-every-sequence", "planted: float16 gradients saturate at the largest number")
class SaturatesFloat16InCells(Loop):
    def backward(self, data, scale):
        scaled = super().backward(data, scale)
        return np.where(np.isinf(data), scaled, np.nan_to_num(scaled, nan=np.nan)) if data.dtype == np.float16 else scaled


class _KeepsCells(Loop):
    """Cells whose rule and options are those of the first cell with the same key."""

    def create_cell(self, rule, parameters, **options):
        self.cells = getattr(self, "cells", {})
        key = repr((self.key(rule, options), [(value.shape, value.dtype) for value in parameters]))
        rule, options = self.cells.setdefault(key, (rule, options))
        return super().create_cell(rule, parameters, **options)


@breaks("STEP-every-sequence", "planted: steps are kept for all cells with equal constants, among which min_scale is missing")
class KeepsTheFirstMinimum(_KeepsCells):
    def key(self, rule, options):
        return replace(rule, min_scale=None), options


@breaks("STEP-every-sequence", "planted: steps are kept for all cells whose schedules have the same length")
class KeepsSchedulesByLength(_KeepsCells):
    def key(self, rule, options):
        rates = options["learning_rate"]
        return rule, {**options, "learning_rate": len(rates) if isinstance(rates, list) else rates}


@breaks("STEP-clip", "planted: with a limit, a step is skipped if the norm is infinite in float32, and reported as finite")
class SkipsAnInfiniteNorm(Loop):
    def clip(self, cell, gradients, norm):
        cell.infinite = cell.max_norm is not None and not np.isfinite(np.float32(norm))
        return super().clip(cell, gradients, norm)

    def apply(self, cell, gradients, rate):
        if not cell.infinite:
            super().apply(cell, gradients, rate)

    def count(self, cell, finite):
        super().count(cell, finite and not cell.infinite)


@breaks("STEP-every-sequence", "planted: a step multiplies its data by the scale in place")
class ScalesItsData(Loop):
    def train_step(self, cell, data):
        outputs = super().train_step(cell, data)
        for value in data:
            value[...] = self.scaled_leaf(value, np.float32(outputs["scale"]))
        return outputs


@breaks("STEP-every-sequence", "planted: initial parameters are kept for all cells with equal shapes, rules and rates")
class KeepsInitialParameters(Loop):
    def create_cell(self, rule, parameters, **options):
        self.parameters = getattr(self, "parameters", {})
        key = repr((rule, options["learning_rate"], [(value.shape, value.dtype) for value in parameters]))
        return super().create_cell(rule, self.parameters.setdefault(key, parameters), **options)


@breaks("STEP-every-sequence", "planted: a learning rate of zero is the default of 1")
class ReplacesAZeroRate(Loop):
    def create_cell(self, rule, parameters, learning_rate=1.0, **options):
        return super().create_cell(rule, parameters, learning_rate=learning_rate or 1.0, **options)


@breaks("STEP-every-sequence", "planted: a step is skipped if a parameter is infinite or NaN")
class ChecksItsParameters(Loop):
    def train_step(self, cell, data):
        self.checked = list(cell.parameters)
        return super().train_step(cell, data)

    def finite_in_cell(self, scaled, gradients, norm):
        return super().finite_in_cell(scaled, gradients, norm) and self.all_finite(self.checked)


@breaks("OVERFLOW-all-finite", "planted: a block of a kernel checks 1024 elements, and the others of an array are not checked")
class ChecksOneBlockOfAGradient(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        return self.all_finite([gradient.reshape(-1)[:1024] for gradient in scaled])


@breaks("STEP-scale-updated-last", "planted: an error is raised at the eleventh overflow in a row")
class RaisesAtTheEleventhOverflow(Loop):
    def count(self, cell, finite):
        super().count(cell, finite)
        cell.row = 0 if finite else getattr(cell, "row", 0) + 1
        if cell.row > 10:
            raise FloatingPointError("the training diverges")


@breaks("STEP-report", "planted: an update that is infinite counts as an overflow")
class ChecksTheUpdate(Loop):
    def rate(self, cell):
        self.last_rate = super().rate(cell)
        return self.last_rate

    def finite_in_cell(self, scaled, gradients, norm):
        with np.errstate(all="ignore"):
            updates = [np.float32(self.last_rate) * gradient.astype(np.float32) for gradient in gradients]
        return super().finite_in_cell(scaled, gradients, norm) and self.all_finite(updates)


@breaks("STEP-every-sequence", "planted: gradients are checked in the dtype of the first one")
class ChecksGradientsInTheFirstDtype(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        with np.errstate(all="ignore"):
            return self.all_finite([gradient.astype(scaled[0].dtype) for gradient in scaled])


@breaks("STEP-every-sequence", "planted: the sum of a float16 gradient is checked, which large finite elements overflow")
class ChecksTheSumOfAFloat16Gradient(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        with np.errstate(all="ignore"):
            sums = [np.sum(gradient, dtype=np.float16) for gradient in scaled if gradient.dtype == np.float16]
        return super().finite_in_cell(scaled, gradients, norm) and self.all_finite(sums)


@breaks("STEP-skip", "planted: a kernel checks blocks of eight elements, and not the rest of a larger array")
class ChecksWholeBlocks(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        blocks = [array.ravel()[: array.size // 8 * 8 or array.size] for array in (*scaled, *gradients)]
        return bool(self.all_finite(blocks))


@breaks("STEP-counters", "planted: the counts of steps have six bits")
class CountsStepsInSixBits(Loop):
    def outputs(self, cell, **numbers):
        return super().outputs(cell, **numbers | {name: numbers[name] % 64 for name in ("attempted", "applied")})


@breaks("STEP-every-sequence", "planted: a limit above 50 counts as no limit")
class IgnoresALargeLimit(Loop):
    def clip(self, cell, gradients, norm):
        return list(gradients) if (cell.max_norm or 0) > 50 else super().clip(cell, gradients, norm)


@breaks("STEP-skip", "planted: from the thirtieth step on, a skipped step resets the velocities")
class ResetsVelocitiesLate(Loop):
    def skip(self, cell, gradients, rate):
        if cell.attempted >= 30:
            cell.velocities = [np.zeros_like(velocity) for velocity in cell.velocities]


@breaks("STEP-every-sequence", "planted: the seed is rounded to float16 while it is finite there")
class RoundsTheSeedToFloat16(Loop):
    def backward(self, data, scale):
        return super().backward(data, np.float16(scale) if scale < 65504 else scale)


@breaks("STEP-every-sequence", "planted: a parameter without a gradient moves by its decayed velocity")
class MovesWithoutAGradient(Loop):
    def apply(self, cell, gradients, rate):
        pairs = zip(cell.parameters, gradients, strict=True)
        super().apply(cell, [np.zeros_like(old) if new is None else new for old, new in pairs], rate)


@breaks("STEP-every-sequence", "planted: a step with a missing gradient counts as finite")
class IgnoresOverflowsBesideNone(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        return super().finite_in_cell(scaled, gradients, norm) or any(gradient is None for gradient in gradients)


@breaks("STEP-every-sequence", "planted: a step without gradients counts as an overflow")
class CountsNoGradientsAsAnOverflow(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        return super().finite_in_cell(scaled, gradients, norm) and any(gradient is not None for gradient in gradients)


@breaks("STEP-every-sequence", "planted: a step without gradients is reported as finite, and the scale backs off")
class BacksOffWithoutGradients(Loop):
    def train_step(self, cell, data):
        old_scaler = copy.copy(cell.scaler)
        outputs = super().train_step(cell, data)
        if all(value is None for value in data):
            cell.scaler = old_scaler
            self.update(cell.scaler, False)
        return {**outputs, "next_scale": self.read_scale(cell.scaler)}


@breaks("STEP-every-sequence", "planted: a step without gradients resets the count of finite steps")
class ResetsTheWindowWithoutGradients(Loop):
    def train_step(self, cell, data):
        outputs = super().train_step(cell, data)
        if all(value is None for value in data):
            cell.scaler.good = 0
        return outputs


@breaks("STEP-every-sequence", "planted: a step without gradients decays the velocities")
class DecaysVelocitiesWithoutGradients(Loop):
    def apply(self, cell, gradients, rate):
        if all(gradient is None for gradient in gradients):
            cell.velocities = [(cell.momentum * velocity).astype(velocity.dtype) for velocity in cell.velocities]
        super().apply(cell, gradients, rate)


@breaks("STEP-every-sequence", "planted: a missing gradient resets the count of overflows")
class ForgetsOverflowsBesideNone(Loop):
    def train_step(self, cell, data):
        if any(value is None for value in data):
            cell.scaler.bad = 0
        return super().train_step(cell, data)


@breaks("STEP-every-sequence", "planted: the published scaler's error resets the velocities", "deepspeed")
class LosesVelocitiesAtAnError(Loop):
    def train_step(self, cell, data):
        try:
            return super().train_step(cell, data)
        except PublishedScalerError:
            cell.velocities = [np.zeros_like(velocity) for velocity in cell.velocities]
            raise


MUTANTS = tuple(_TABLE)
