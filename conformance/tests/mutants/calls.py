"""Mutants of chapter 55: the calls of hand-written loops."""

import copy

import numpy as np

from . import calls_sequences, table
from .loop import Loop, OutOfOrderError, Progress

_TABLE, breaks = table()


def _check_only(loop, handle, optimizer):
    """Check the gradients without dividing them."""
    handle.progress[optimizer] = Progress(loop.flag_of(optimizer.gradients, optimizer.gradients))


# --- effect of each call ---


@breaks("CALLS-step", "nerfstudio-project/nerfacc#307: the optimizer steps without the scaler, 1024 times too far")
class StepLeavesGradientsScaled(Loop):
    def unscale_in_step(self, handle, optimizer):
        _check_only(self, handle, optimizer)


@breaks("CALLS-step", "pytorch/pytorch#196195: without CUDA the scaler disables itself, although the loss was scaled before")
class DisablesItself(Loop):
    def unscaled_gradient(self, handle, gradient):
        return gradient


@breaks("CALLS-step", "pytorch/pytorch#94060: a fused optimizer unscales the gradients, even after unscale_")
class StepUnscalesAgain(Loop):
    def unscale_in_unscale(self, handle, optimizer):
        super().unscale_in_unscale(handle, optimizer)
        optimizer.early = True

    def gradients_of_step(self, handle, optimizer):
        if not getattr(optimizer, "early", False):
            return optimizer.gradients
        return [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]


@breaks(
    "CALLS-unscale",
    "Lightning-AI/pytorch-lightning#9599: gradients are divided in the step, and clipped before it",
    capabilities=(),
)
class UnscaleOnlyChecks(Loop):
    def unscale_in_unscale(self, handle, optimizer):
        _check_only(self, handle, optimizer)
        optimizer.early = True

    def gradients_of_step(self, handle, optimizer):
        if not getattr(optimizer, "early", False):
            return optimizer.gradients
        return [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]


@breaks("CALLS-step", "not observed: float32 gradients count as master gradients, which are unscaled already")
class StepLeavesFloat32Scaled(Loop):
    def unscale_in_step(self, handle, optimizer):
        if optimizer.gradients[0].dtype == np.float32:
            _check_only(self, handle, optimizer)
        else:
            self.unscale_now(handle, optimizer)


@breaks("CALLS-step", "planted: the kernel has no branch for bfloat16, whose gradients stay scaled")
class LeavesBfloat16GradientsScaled(Loop):
    def unscaled_gradient(self, handle, gradient):
        is_bfloat16 = gradient is not None and gradient.dtype.name == "bfloat16"
        return gradient if is_bfloat16 else super().unscaled_gradient(handle, gradient)


@breaks("CALLS-step", "Paddle 3.3.1: float64 gradients are left out of the lists that are unscaled")
class LeavesFloat64GradientsScaled(Loop):
    def unscaled_gradient(self, handle, gradient):
        is_float64 = gradient is not None and gradient.dtype == np.float64
        return gradient if is_float64 else super().unscaled_gradient(handle, gradient)


@breaks("CALLS-unscale", "planted: float16 gradients are divided by a scale that is rounded to float16")
class RoundsTheScale(Loop):
    def unscaled_gradient(self, handle, gradient):
        if gradient is None or gradient.dtype != np.float16:
            return super().unscaled_gradient(handle, gradient)
        return self.unscaled_leaf(gradient, np.float16(self.unscaling_scale(handle)))


@breaks("CALLS-unscale", "planted: float16 gradients are multiplied by the reciprocal of the scale")
class MultipliesFloat16ByTheReciprocal(Loop):
    def unscaled_gradient(self, handle, gradient):
        if gradient is None or gradient.dtype != np.float16:
            return super().unscaled_gradient(handle, gradient)
        return (gradient.astype(np.float32) * (np.float32(1) / np.float32(handle.shown))).astype(np.float16)


@breaks("CALLS-edits-kept", "not observed: unscale_ makes a master copy, and clipping changes the original")
class LosesEdits(Loop):
    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        optimizer.unscaled = list(optimizer.gradients)

    def gradients_of_step(self, handle, optimizer):
        return optimizer.unscaled


@breaks("CALLS-skip", "pytorch/pytorch#95781: a fused optimizer applies gradients that were not checked")
class StepDoesNotCheck(Loop):
    def unscale_in_step(self, handle, optimizer):
        super().unscale_in_step(handle, optimizer)
        optimizer.late = True

    def unscale_in_unscale(self, handle, optimizer):
        super().unscale_in_unscale(handle, optimizer)
        optimizer.late = False

    def decision(self, handle, optimizer):
        return optimizer.late or super().decision(handle, optimizer)


@breaks("CALLS-skip", "pytorch/pytorch#95847: the flag of unscale_ is not passed to a fused optimizer")
class LosesTheFlagOfUnscale(StepDoesNotCheck):
    def decision(self, handle, optimizer):
        return not optimizer.late or Loop.decision(self, handle, optimizer)


@breaks("CALLS-flag-kept", "pytorch/pytorch#97415: step checks the gradients again, and uses the new result")
class ChecksAgain(Loop):
    def decision(self, handle, optimizer):
        return bool(super().all_finite(list(optimizer.gradients)))


@breaks("OVERFLOW-both-sides", "pytorch/pytorch#96755: only the scaled gradients are checked")
class ChecksOnlyBefore(Loop):
    def flag_of(self, scaled, unscaled):
        return super().flag_of(scaled, scaled)


@breaks("OVERFLOW-both-sides", "planted: only the first optimizer of an iteration is checked after the division")
class ChecksTheFirstOptimizerAfterwards(Loop):
    def unscale_now(self, handle, optimizer):
        scaled, later = list(optimizer.gradients), bool(handle.progress)
        super().unscale_now(handle, optimizer)
        if later:
            handle.progress[optimizer].finite = self.flag_of(scaled, scaled)


@breaks("OVERFLOW-both-sides", "planted: float16 quotients are checked in float32, and are infinite when they are stored")
class ChecksFloat16BeforeRounding(Loop):
    def flag_of(self, scaled, unscaled):
        pairs = zip(scaled, unscaled, strict=True)
        rounded = [before if before is not None and before.dtype == np.float16 else after for before, after in pairs]
        return super().flag_of(scaled, rounded)


@breaks("OVERFLOW-both-sides", "planted: float16 quotients saturate at the largest number")
class SaturatesUnscaledFloat16(Loop):
    def unscaled_gradient(self, handle, gradient):
        unscaled = super().unscaled_gradient(handle, gradient)
        if gradient is None or gradient.dtype != np.float16:
            return unscaled
        return np.where(np.isfinite(gradient), np.clip(unscaled, np.float16(-65504), np.float16(65504)), unscaled)


# --- update and use of the scale ---


@breaks(
    "CALLS-scale-constant", "huggingface/accelerate#439: a wrapped step updates the scale before the other optimizer has used it"
)
class UpdatesInStep(Loop):
    def mark_stepped(self, handle, optimizer, applied):
        super().mark_stepped(handle, optimizer, applied)
        self.update(handle, applied)

    def flags_of_update(self, handle):
        stepped = any(progress.stepped for progress in handle.progress.values())
        return [] if stepped else super().flags_of_update(handle)


@breaks("CALLS-update", "deepspeedai/DeepSpeed#8588: the scale is updated before the gradients are divided by it")
class DividesByTheNextScale(Loop):
    def unscaling_scale(self, handle):
        next_handle = copy.copy(handle)
        self.update(next_handle, True)
        return next_handle.shown


@breaks("CALLS-update", "pytorch/pytorch#55562: a captured graph keeps the scale that it was captured with")
class DividesByTheFirstScale(Loop):
    def unscaling_scale(self, handle):
        return self.rounded(handle.rule, handle.rule.init_scale)


@breaks("CALLS-update", "not observed: the old scale is read until gradients are unscaled, so that the loss is scaled by it")
class ShowsTheScaleLate(Loop):
    def update_scale(self, handle):
        handle.old = handle.shown
        super().update_scale(handle)

    def unscale_now(self, handle, optimizer):
        handle.old = None
        super().unscale_now(handle, optimizer)

    def read_scale(self, handle):
        return float(getattr(handle, "old", None) or handle.shown)


@breaks("CALLS-update", "not observed: if a loop omits a step, as in Haian-Jin/LVSM#19, the flag of unscale_ is lost")
class CountsOnlySteps(Loop):
    def flags_of_update(self, handle):
        stepped = [progress.finite for progress in handle.progress.values() if progress.stepped and progress.finite is not None]
        return [all(stepped)] if stepped else []


@breaks("CALLS-update-closes", "Haian-Jin/LVSM#19: an omitted step does not end the iteration")
class ClosesOnlySteps(Loop):
    def end_iteration(self, handle):
        handle.progress = {optimizer: progress for optimizer, progress in handle.progress.items() if not progress.stepped}


@breaks(
    "CALLS-update-closes",
    "deepspeedai/DeepSpeed#8432: after the first overflow, every step counts as an overflow",
    capabilities=(),
)
class FlagSticks(Loop):
    def decision(self, handle, optimizer):
        handle.stuck = getattr(handle, "stuck", False) or not super().decision(handle, optimizer)
        return not handle.stuck


@breaks("CALLS-update-closes", "not observed: a flag is only overwritten by the next flag of its optimizer")
class KeepsFlagsOfUnusedOptimizers(Loop):
    def flags_of_update(self, handle):
        handle.last = {**getattr(handle, "last", {}), **handle.progress}
        flags = [progress.finite for progress in handle.last.values() if progress.finite is not None]
        return [all(flags)] if flags else []


@breaks("CALLS-answer", "pytorch/pytorch#55585: callers cannot know whether to step the schedule")
class ReturnsNothing(Loop):
    def step_result(self, handle, applied):
        return None


@breaks("CALLS-answer", "huggingface/accelerate#4242: a step that a fused optimizer skips is reported as applied")
class ReportsEveryStep(Loop):
    def step_result(self, handle, applied):
        return True


@breaks("CALLS-answer", "not observed: found_inf is returned, as requested in pytorch/pytorch#142472, instead of its inverse")
class ReportsOverflows(Loop):
    def step_result(self, handle, applied):
        return not applied


# --- rejected calls ---


@breaks(
    "CALLS-unscale-once",
    "huggingface/accelerate#113: a wrapped optimizer is not recognized, and its gradients are divided twice",
)
class UnscalesTwice(Loop):
    def check_unscale(self, handle, optimizer):
        if (progress := self.progress_of(handle, optimizer)) is not None and progress.stepped:
            raise OutOfOrderError("unscale_ must be called before step")


@breaks("CALLS-unscale-once", "not observed: the call is rejected after the gradients were divided")
class RejectsAfterDividing(Loop):
    def check_unscale(self, handle, optimizer):
        if self.progress_of(handle, optimizer) is not None:
            optimizer.gradients = [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]
        super().check_unscale(handle, optimizer)


@breaks("CALLS-unscale-once", "not observed: an unscale_ after a step is rejected after the gradients were divided")
class DividesAfterAStep(RejectsAfterDividing):
    def check_unscale(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped:
            super().check_unscale(handle, optimizer)
        Loop.check_unscale(self, handle, optimizer)


@breaks("CALLS-unscale-once", "not observed: step leaves no mark that unscale_ checks")
class UnscalesAfterAStep(Loop):
    def check_unscale(self, handle, optimizer):
        if (progress := self.progress_of(handle, optimizer)) is not None and not progress.stepped:
            raise OutOfOrderError("unscale_ must be called at most once between updates")


@breaks("CALLS-step-once", "IAHispano/Applio#860: the optimizer itself steps once more after the scaler's step")
class StepsTwice(Loop):
    def check_step(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped and not progress.finite:
            raise OutOfOrderError("step must be called at most once between updates")


@breaks("CALLS-step-once", "not observed: the call is rejected after the optimizer has stepped")
class RejectsAfterApplying(Loop):
    def check_step(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped and progress.finite:
            self.apply_gradients(optimizer, optimizer.gradients)
        super().check_step(handle, optimizer)


@breaks("CALLS-step-once", "not observed: a skipped step leaves no mark")
class StepsAfterASkip(Loop):
    def mark_stepped(self, handle, optimizer, applied):
        self.progress_of(handle, optimizer).stepped = applied


@breaks("CALLS-update-needs-a-check", "Paddle 3.3.1: the initial flag of a scaler counts as a finite step")
class UpdatesWithoutAStep(Loop):
    def check_update(self, handle):
        if getattr(handle, "updated", False):
            super().check_update(handle)

    def flags_of_update(self, handle):
        return super().flags_of_update(handle) or [True]

    def end_iteration(self, handle):
        super().end_iteration(handle)
        handle.updated = True


@breaks("CALLS-update-needs-a-check", "Paddle 3.3.1: found_inf remains, and each further update backs off again")
class KeepsTheLastOverflow(Loop):
    def check_update(self, handle):
        if not getattr(handle, "last", []):
            super().check_update(handle)

    def flags_of_update(self, handle):
        if handle.progress:
            handle.last = [flag for flag in super().flags_of_update(handle) if not flag]
            return super().flags_of_update(handle)
        return list(handle.last)


@breaks("CALLS-update-needs-a-check", "Paddle 3.3.1 with a fixed scale: an update without a step is accepted, and does nothing")
class AcceptsEmptyUpdates(Loop):
    def check_update(self, handle):
        pass


# --- several optimizers ---


@breaks("CALLS-own-flag", "Paddle 3.3.1: one flag for all optimizers, which the last unscale_ overwrites")
class LastOptimizerDecides(Loop):
    def decision(self, handle, optimizer):
        return bool(list(handle.progress.values())[-1].finite)


@breaks("CALLS-own-flag", "not observed: with one flag for all optimizers, an overflow in one half of a GAN skips the other")
class AnyOverflowSkipsAll(Loop):
    def decision(self, handle, optimizer):
        return all(progress.finite for progress in handle.progress.values())


@breaks("CALLS-own-flag", "not observed: all optimizers share one mark, which states that gradients are unscaled")
class SharesTheUnscaledMark(Loop):
    def must_unscale(self, handle, optimizer):
        if handle.progress and optimizer not in handle.progress:
            _check_only(self, handle, optimizer)
        return not handle.progress


@breaks("CALLS-one-update", "Paddle 3.3.1: each step overwrites the flag that update uses")
class LastOptimizerUpdatesTheScale(Loop):
    def flags_of_update(self, handle):
        return [bool(list(handle.progress.values())[-1].finite)]


@breaks("CALLS-one-update", "not observed: update uses the flag of the first step")
class FirstOptimizerUpdatesTheScale(Loop):
    def flags_of_update(self, handle):
        return [bool(next(iter(handle.progress.values())).finite)]


@breaks("CALLS-one-update", "huggingface/accelerate#439, neosr-project/neosr#9: the scale is updated after each optimizer's step")
class UpdatesForEachOptimizer(Loop):
    def flags_of_update(self, handle):
        return [bool(progress.finite) for progress in handle.progress.values()]


# --- parameters without a gradient ---


@breaks("CALLS-none", "tensorflow/tensorflow#27655: None is passed to the check, which raises an error")
class FailsOnNone(Loop):
    def unscaled_gradient(self, handle, gradient):
        if gradient is None:
            raise TypeError("a gradient must be an array, got None")
        return super().unscaled_gradient(handle, gradient)


@breaks("CALLS-none", "not observed: zeros replace a missing gradient, and momentum changes the parameter")
class FillsInZeros(Loop):
    def unscaled_gradient(self, handle, gradient):
        return np.zeros(1, np.float32) if gradient is None else super().unscaled_gradient(handle, gradient)


@breaks("CALLS-none", "planted: the gradients without None are paired with the first parameters")
class ShiftsGradients(Loop):
    def gradients_of_step(self, handle, optimizer):
        parameters, given = optimizer.parameters, [gradient for gradient in optimizer.gradients if gradient is not None]
        if any(gradient.shape != parameter.shape for gradient, parameter in zip(given, parameters, strict=False)):
            return optimizer.gradients
        return given + [None] * (len(parameters) - len(given))


@breaks("CALLS-no-gradients", "nerfstudio-project/nerfstudio#1919: no inf checks were recorded for this optimizer")
class RejectsAStepWithoutGradients(Loop):
    def decision(self, handle, optimizer):
        if self.progress_of(handle, optimizer).finite is None:
            raise AssertionError("no gradients were checked")
        return super().decision(handle, optimizer)


@breaks("CALLS-no-gradients", "huggingface/accelerate#357: no inf checks were recorded prior to update")
class RejectsAnUpdateWithoutGradients(Loop):
    def check_update(self, handle):
        super().check_update(handle)
        if all(progress.finite is None for progress in handle.progress.values()):
            raise AssertionError("no gradients were checked")


@breaks("CALLS-no-gradients", "not observed: an optimizer without a flag counts as an overflow")
class TreatsMissingGradientsAsAnOverflow(Loop):
    def flags_of_update(self, handle):
        return [all(progress.finite for progress in handle.progress.values())]


@breaks("CALLS-no-gradients", "not observed: an optimizer without a flag ends the update for all")
class MissingGradientsBlockTheUpdate(Loop):
    def flags_of_update(self, handle):
        missing = any(progress.finite is None for progress in handle.progress.values())
        return [] if missing else super().flags_of_update(handle)


@breaks("CALLS-no-gradients", "planted: nothing is recorded for an optimizer without gradients, so unscale_ may be called again")
class UnscalesNothingTwice(Loop):
    def check_unscale(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is None or progress.finite is not None:
            super().check_unscale(handle, optimizer)


@breaks("CALLS-no-gradients", "planted: an optimizer without gradients that comes last makes the update finite")
class LastWithoutGradientsDecides(Loop):
    def flags_of_update(self, handle):
        flags = [progress.finite for progress in handle.progress.values()]
        return [True] if flags[-1] is None and any(flag is not None for flag in flags) else super().flags_of_update(handle)


@breaks(
    "CALLS-no-gradients",
    "planted: the same, in an implementation for which only a few cases apply",
    "torch",
    capabilities=("none", "groups", "resume"),
)
class LastWithoutGradientsDecidesAlone(LastWithoutGradientsDecides):
    pass


@breaks("CALLS-no-gradients", "planted: with a missing gradient, gradients are checked before the division only")
class ChecksOnlyBeforeBesideMissingGradients(Loop):
    def flag_of(self, scaled, unscaled):
        return super().flag_of(scaled, scaled if any(leaf is None for leaf in scaled) else unscaled)


@breaks("CALLS-one-update", "planted: an array holds the flags of at most three optimizers")
class CountsThreeFlags(Loop):
    def flags_of_update(self, handle):
        flags = [progress.finite for progress in list(handle.progress.values())[:3] if progress.finite is not None]
        return [all(flags)] if flags else []


@breaks("CALLS-one-update", "planted: from the third optimizer on, each step counts toward the growth")
class CountsTheThirdOptimizer(Loop):
    def update_scale(self, handle):
        count = sum(bool(progress.finite) for progress in handle.progress.values())
        super().update_scale(handle)
        handle.good += count > 2


@breaks("CALLS-every-sequence", "planted: float32 gradients that fit are unscaled in float16")
class UnscalesInFloat16(Loop):
    def unscaled_gradient(self, handle, gradient):
        exact = super().unscaled_gradient(handle, gradient)
        if exact is None or exact.dtype != np.float32:
            return exact
        with np.errstate(all="ignore"):
            narrow = exact.astype(np.float16).astype(np.float32)
        return np.where(np.isfinite(narrow) & (narrow != 0), narrow, exact)


MUTANTS = (*_TABLE, *calls_sequences.MUTANTS)
