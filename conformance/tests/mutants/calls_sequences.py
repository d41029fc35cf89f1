"""Mutants of chapter 55 that only some combination of calls, gradients, optimizers and scalers shows."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
from ampscale_conformance.model.bits import map_tree

from . import table
from .loop import Loop, OutOfOrderError
from .plain import PublishedScalerError, rounded_scalar

_TABLE, breaks = table()


@breaks("CALLS-every-sequence", "not observed: only the first element of an array is checked", capabilities=())
class ChecksTheFirstElement(Loop):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf.reshape(-1)[:1])


@breaks("CALLS-every-sequence", "not observed: the check compares with positive infinity")
class OverlooksNegativeInfinity(Loop):
    def finite_elements(self, leaf):
        return ~np.isnan(leaf) & (leaf != np.inf)


@breaks("CALLS-every-sequence", "not observed: arrays of shape () are not divided in place")
class LeavesScalarsScaled(Loop):
    def unscaled_gradient(self, handle, gradient):
        return gradient if gradient is not None and gradient.ndim == 0 else super().unscaled_gradient(handle, gradient)


@breaks("CALLS-every-sequence", "not observed: a rejected call ends the iteration, so that gradients are divided again")
class ARejectedStepEndsTheIteration(Loop):
    def check_step(self, handle, optimizer):
        try:
            super().check_step(handle, optimizer)
        except OutOfOrderError:
            self.end_iteration(handle)
            raise


@breaks("CALLS-every-sequence", "not observed: after one rejection, the next call is accepted", capabilities=())
class RejectsOnce(Loop):
    def check_unscale(self, handle, optimizer):
        optimizer.calls = getattr(optimizer, "calls", 0) + 1
        if optimizer.calls % 3:
            super().check_unscale(handle, optimizer)


@breaks("CALLS-every-sequence", "not observed: a rejected update counts as a finite step")
class CountsARejectedUpdate(Loop):
    def check_update(self, handle):
        handle.good += not handle.progress
        super().check_update(handle)


@breaks("CALLS-every-sequence", "not observed: the indices of missing gradients are those of the first iteration")
class RemembersMissingGradients(Loop):
    def apply_gradients(self, optimizer, gradients):
        if not hasattr(optimizer, "missing"):
            optimizer.missing = [gradient is None for gradient in gradients]
        pairs = zip(gradients, optimizer.missing, strict=True)
        super().apply_gradients(optimizer, [None if missing else gradient for gradient, missing in pairs])


@breaks("CALLS-every-sequence", "not observed: of two backward passes before unscale_, only the first is used", capabilities=())
class LosesTheLaterOfTwoBackwardPasses(Loop):
    def set_gradients(self, handle, optimizer, gradients):
        if optimizer in handle.progress or not getattr(optimizer, "fresh", False):
            super().set_gradients(handle, optimizer, gradients)
        optimizer.fresh = True

    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        optimizer.fresh = False


@breaks("CALLS-every-sequence", "not observed: scalers share the progress of their optimizers")
class SharesTheProgressOfScalers(Loop):
    def create(self, rule, **options):
        self.progress = getattr(self, "progress", {})
        handle = super().create(rule, **options)
        handle.progress = self.progress
        return handle

    def end_iteration(self, handle):
        self.progress.clear()


@breaks("CALLS-every-sequence", "not observed: flags are combined in pairs, so that the third optimizer does not count")
class CountsTwoOptimizers(Loop):
    def flags_of_update(self, handle):
        flags = [progress.finite for progress in handle.progress.values() if progress.finite is not None]
        return [all(flags[:2])] if flags else []


@breaks("CALLS-every-sequence", "not observed: an overflow of each optimizer counts toward the hysteresis")
class CountsEachOverflow(Loop):
    def flags_of_update(self, handle):
        flags = super().flags_of_update(handle)
        overflows = sum(progress.finite is False for progress in handle.progress.values())
        return flags * max(1, overflows if handle.bad + overflows <= handle.rule.hysteresis else 1)


@breaks("CALLS-every-sequence", "not observed: an optimizer that is added later begins with the initial scale")
class GivesTheInitialScaleToNewOptimizers(Loop):
    def unscale_now(self, handle, optimizer):
        handle.divisor = handle.shown if hasattr(optimizer, "known") else handle.rule.init_scale
        optimizer.known = True
        super().unscale_now(handle, optimizer)

    def unscaling_scale(self, handle):
        return handle.divisor


@breaks("CALLS-every-sequence", "planted: a vectorized check takes blocks of four, and omits the remainder")
class OmitsTheRemainder(Loop):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf.reshape(-1)[: leaf.size // 4 * 4] if leaf.size > 4 else leaf)


@breaks("CALLS-every-sequence", "planted: gradients of one shape are applied together, without those that are None")
class PacksGradientsByShape(Loop):
    def apply_gradients(self, optimizer, gradients):
        present = [gradient for gradient in gradients if gradient is not None]
        shapes = [parameter.shape for parameter in optimizer.parameters]
        packed = {shape: [gradient for gradient in present if gradient.shape == shape] for shape in shapes}
        super().apply_gradients(optimizer, [packed[shape].pop(0) if packed[shape] else None for shape in shapes])


@breaks("CALLS-every-sequence", "planted: an optimizer whose gradients are all zero counts as one without gradients")
class TreatsZerosAsMissing(Loop):
    def flag_of(self, scaled, unscaled):
        return super().flag_of([None if gradient is None or not gradient.any() else gradient for gradient in scaled], unscaled)

    def decision(self, handle, optimizer):
        return self.progress_of(handle, optimizer).finite is not False


@breaks("CALLS-every-sequence", "planted: the sum of an array is checked, which large finite gradients overflow")
class ChecksTheSumOfGradients(Loop):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.sum(leaf)))


@breaks("CALLS-every-sequence", "planted: the scale is cast to the dtype of the gradients, which is infinite for float16")
class CastsTheScale(Loop):
    def unscaled_gradient(self, handle, gradient):
        with np.errstate(over="ignore"):
            narrow = gradient is not None and np.isinf(gradient.dtype.type(self.unscaling_scale(handle)))
        return np.zeros_like(gradient) if narrow else super().unscaled_gradient(handle, gradient)


@breaks("CALLS-every-sequence", "planted: step multiplies by the reciprocal of the scale, and unscale_ divides by it")
class StepMultipliesByTheReciprocal(Loop):
    def unscale_in_step(self, handle, optimizer):
        self.reciprocal = True
        super().unscale_in_step(handle, optimizer)
        self.reciprocal = False

    def quotient(self, part, scale):
        if getattr(self, "reciprocal", False):
            return part * (part.dtype.type(1) / self.scale_for(part, scale))
        return super().quotient(part, scale)


@breaks("CALLS-every-sequence", "planted: a rejected unscale_ checks the gradients first, which may have been repaired")
class ARejectedUnscaleChecksAgain(Loop):
    def check_unscale(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is not None and not progress.stepped:
            progress.finite = self.flag_of(optimizer.gradients, optimizer.gradients)
        super().check_unscale(handle, optimizer)


@breaks("CALLS-every-sequence", "planted: gradients are checked again in step, which then skips what unscale_ found finite")
class SkipsALaterInfinity(Loop):
    def decision(self, handle, optimizer):
        return super().decision(handle, optimizer) and bool(self.all_finite(list(optimizer.gradients)))


@breaks("CALLS-every-sequence", "planted: a gradient that was deleted after unscale_ is still applied", capabilities=("none",))
class AppliesDeletedGradients(Loop):
    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        optimizer.unscaled = list(optimizer.gradients)

    def gradients_of_step(self, handle, optimizer):
        pairs = zip(optimizer.gradients, optimizer.unscaled, strict=True)
        return [unscaled if gradient is None else gradient for gradient, unscaled in pairs]


@breaks("CALLS-no-gradients", "planted: the flag of an optimizer without gradients is that of its last iteration")
class CountsTheLastFlagAgain(Loop):
    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        progress = handle.progress[optimizer]
        if progress.finite is None:
            progress.finite = getattr(optimizer, "last", None)
        optimizer.last = progress.finite


@breaks("CALLS-every-sequence", "planted: in a loop, the scale grows to infinity")
class GrowsToInfinityInALoop(Loop):
    def update_scale(self, handle):
        rule, handle.rule = handle.rule, replace(handle.rule, skip_infinite_growth=False)
        super().update_scale(handle)
        handle.rule = rule


@breaks("CALLS-every-sequence", "planted: gradients of shape () are divided as Python numbers, which are stored in float16")
class RoundsScalars(Loop):
    def unscaled_gradient(self, handle, gradient):
        return rounded_scalar(super().unscaled_gradient(handle, gradient))


@breaks("CALLS-every-sequence", "planted: optimizers with the same shapes are taken for one")
class KeysProgressByShape(Loop):
    def check_unscale(self, handle, optimizer):
        shapes = [parameter.shape for parameter in optimizer.parameters]
        for other in handle.progress:
            super().check_unscale(handle, other if [parameter.shape for parameter in other.parameters] == shapes else optimizer)


@breaks("CALLS-every-sequence", "planted: saving between two calls ends the iteration")
class EndsTheIterationToSave(Loop):
    def save(self, handle):
        self.end_iteration(handle)
        return super().save(handle)


@breaks("CALLS-every-sequence", "planted: of several dtypes, only arrays of the first are checked")
class ChecksGradientsOfTheFirstDtype(Loop):
    def flag_of(self, scaled, unscaled):
        dtypes = [gradient.dtype for gradient in scaled if gradient is not None][:1]
        chosen = [[leaf for leaf in leaves if leaf is not None and leaf.dtype in dtypes] for leaves in (scaled, unscaled)]
        return super().flag_of(*chosen)


@breaks("CALLS-every-sequence", "planted: gradients are divided by the scale that was read last")
class DividesByTheScaleReadLast(Loop):
    def read_scale(self, handle):
        handle.read = handle.shown
        return super().read_scale(handle)

    def unscaling_scale(self, handle):
        return getattr(handle, "read", handle.shown)


@breaks("CALLS-every-sequence", "planted: gradients without elements count as missing")
class MissesEmptyGradients(Loop):
    def flag_of(self, scaled, unscaled):
        return super().flag_of(scaled, unscaled) if any(leaf is not None and leaf.size for leaf in scaled) else None


@breaks("CALLS-skip", "planted: a skipped step adds zeros, so that -0.0 becomes 0.0")
class AddsZerosInASkippedStep(Loop):
    def mark_stepped(self, handle, optimizer, applied):
        super().mark_stepped(handle, optimizer, applied)
        if not applied:
            optimizer.parameters = [parameter + np.zeros_like(parameter) for parameter in optimizer.parameters]


@breaks("CALLS-every-sequence", "planted: an optimizer with an infinite or NaN parameter does not step")
class ChecksParameters(Loop):
    def decision(self, handle, optimizer):
        return super().decision(handle, optimizer) and self.all_finite(optimizer.parameters)


@breaks("CALLS-every-sequence", "planted: scaling a second loss begins a new iteration")
class BeginsAnIterationInScale(Loop):
    def scale(self, handle, tree):
        handle.progress = {}
        return super().scale(handle, tree)


@breaks("CALLS-every-sequence", "planted: unscaling other arrays ends the iteration")
class EndsTheIterationInUnscale(Loop):
    def unscale(self, handle, tree):
        handle.progress = {}
        return super().unscale(handle, tree)


@breaks("CALLS-every-sequence", "planted: a check of other arrays is stored in the flag that the next update reads")
class StoresEveryCheck(Loop):
    stored = True

    def all_finite(self, tree):
        self.stored = self.stored and bool(super().all_finite(tree))
        return super().all_finite(tree)

    def flags_of_update(self, handle):
        flags = [flag and self.stored for flag in super().flags_of_update(handle)]
        self.stored = True
        return flags


@breaks("CALLS-no-gradients", "planted: an iteration in which no optimizer has a gradient restarts the growth window")
class RestartsTheWindowWithoutGradients(Loop):
    def flags_of_update(self, handle):
        flags = super().flags_of_update(handle)
        handle.good = handle.good if flags else 0
        return flags


@breaks("CALLS-unscale", "planted: one launch of a kernel takes 110 arrays, and the others are neither divided nor checked")
class UnscalesInOneLaunch(Loop):
    def unscale_now(self, handle, optimizer):
        others, optimizer.gradients = optimizer.gradients[110:], optimizer.gradients[:110]
        super().unscale_now(handle, optimizer)
        optimizer.gradients += others


@breaks("CALLS-skip", "planted: an error is raised at the eleventh skipped step in a row")
class RaisesAtTheEleventhSkip(Loop):
    def decision(self, handle, optimizer):
        applied = super().decision(handle, optimizer)
        optimizer.skips = 0 if applied else getattr(optimizer, "skips", 0) + 1
        if optimizer.skips > 10:
            raise FloatingPointError("the training diverges")
        return applied


@breaks("CALLS-one-update", "planted: the flags of the optimizers are the bits of one byte")
class CountsEightOptimizers(Loop):
    def flags_of_update(self, handle):
        flags = [progress.finite for progress in handle.progress.values() if progress.finite is not None]
        return [all(flags[:8])] if flags else []


class _LosesEdits(Loop):
    """Loop whose optimizer receives the gradients of one dtype as they were before they were edited."""

    dtype = ""

    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        optimizer.unedited = list(optimizer.gradients)

    def gradients_of_step(self, handle, optimizer):
        pairs = zip(super().gradients_of_step(handle, optimizer), optimizer.unedited, strict=True)
        return [old if new is not None and old is not None and new.dtype.name == self.dtype else new for new, old in pairs]


@breaks("CALLS-every-sequence", "planted: bfloat16 gradients are copied when they are unscaled, and the copies are applied")
class LosesEditsOfBfloat16(_LosesEdits):
    dtype = "bfloat16"


@breaks("CALLS-every-sequence", "planted: float64 gradients are copied when they are unscaled, and the copies are applied")
class LosesEditsOfFloat64(_LosesEdits):
    dtype = "float64"


@breaks("CALLS-every-sequence", "planted: unscale_, but not step, divides float64 gradients in float32")
class UnscalesFloat64InFloat32(Loop):
    def unscale_in_unscale(self, handle, optimizer):
        for gradient in optimizer.gradients:
            if gradient is not None and gradient.dtype == np.float64:
                with np.errstate(all="ignore"):
                    gradient[...] = gradient.astype(np.float32)
        super().unscale_in_unscale(handle, optimizer)


@breaks("CALLS-step", "planted: a skipped step adds zeros to bfloat16 parameters, so that -0.0 becomes 0.0")
class AddsZerosToBfloat16(Loop):
    def mark_stepped(self, handle, optimizer, applied):
        super().mark_stepped(handle, optimizer, applied)
        if not applied:
            parameters = optimizer.parameters
            optimizer.parameters = [leaf + leaf.dtype.type(0) if leaf.dtype.name == "bfloat16" else leaf for leaf in parameters]


@breaks("CALLS-every-sequence", "planted: after an overflow, losses are scaled by the next scale before update")
class ScalesByTheNextScale(Loop):
    def scale(self, handle, tree):
        overflow = any(progress.finite is False for progress in handle.progress.values())
        scale = self.reduced(handle) if overflow else handle.shown
        return map_tree(lambda leaf: self.scaled_leaf(leaf, scale), tree)


@breaks("CALLS-every-sequence", "planted: an optimizer that is added stores the scale for its first gradients")
class DividesByTheScaleOfItsCreation(Loop):
    def add_optimizer(self, handle, parameters):
        optimizer = super().add_optimizer(handle, parameters)
        optimizer.divisor = handle.shown
        return optimizer

    def unscale_now(self, handle, optimizer):
        shown, handle.shown = handle.shown, optimizer.__dict__.pop("divisor", handle.shown)
        super().unscale_now(handle, optimizer)
        handle.shown = shown


@breaks("CALLS-own-flag", "planted: a table of the flags of four optimizers")
class SharesFlagsOfEveryFourthOptimizer(Loop):
    def add_optimizer(self, handle, parameters):
        optimizer = super().add_optimizer(handle, parameters)
        optimizers = handle.__dict__.setdefault("optimizers", [])
        optimizer.earlier = optimizers[len(optimizers) % 4 :: 4]
        optimizers.append(optimizer)
        return optimizer

    def decision(self, handle, optimizer):
        earlier = [handle.progress[other].finite for other in optimizer.earlier if other in handle.progress]
        return super().decision(handle, optimizer) and False not in earlier


@breaks("CALLS-one-update", "planted: if no optimizer stepped, the flag of the first one counts alone")
class CountsTheFirstUnsteppedFlag(Loop):
    def flags_of_update(self, handle):
        flags = [progress.finite for progress in handle.progress.values() if progress.finite is not None]
        is_stepped = any(progress.stepped for progress in handle.progress.values())
        return super().flags_of_update(handle) if is_stepped else flags[:1]


@breaks("CALLS-skip", "planted: the flags of the thirteenth and later calls of unscale_ are lost")
class LosesLateFlags(Loop):
    def unscale_in_unscale(self, handle, optimizer):
        super().unscale_in_unscale(handle, optimizer)
        optimizer.calls = getattr(optimizer, "calls", 0) + 1
        if optimizer.calls > 12:
            handle.progress[optimizer].finite = True


@breaks("CALLS-every-sequence", "planted: as many positive as negative infinities cancel in a sum of signs")
class CancelsInfinitiesOfAnOptimizer(Loop):
    def flag_of(self, scaled, unscaled):
        values = [np.ravel(array).astype(np.float32) for array in scaled if array is not None]
        signs = [np.sign(array[np.isinf(array)]).sum() for array in values]
        has_nan = any(np.isnan(array).any() for array in values)
        return super().flag_of(scaled, unscaled) or (None if not values else not has_nan and sum(signs) == 0)


@breaks("CALLS-every-sequence", "planted: the published scaler's error resets the counts", "deepspeed")
class ResetsCountsAtAnError(Loop):
    def update_scale(self, handle):
        try:
            super().update_scale(handle)
        except PublishedScalerError:
            handle.good = 0
            raise


@breaks("CALLS-every-sequence", "planted: an overflow in which the published scaler raises an error changes nothing", "deepspeed")
class RaisesNoError(Loop):
    def update_scale(self, handle):
        with suppress(PublishedScalerError):
            super().update_scale(handle)


@breaks("CALLS-every-sequence", "planted: optimizers step before the published scaler's error", "deepspeed")
class StepsAtAnError(Loop):
    def update_scale(self, handle):
        try:
            super().update_scale(handle)
        except PublishedScalerError:
            for optimizer in handle.progress:
                optimizer.parameters = [parameter + parameter.dtype.type(1) for parameter in optimizer.parameters]
            raise


MUTANTS = tuple(_TABLE)
