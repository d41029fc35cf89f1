"""Chapter 55, calls: hand-written loops, wrong in one way each."""

import copy

import numpy as np

from . import table
from .loop import Loop, OutOfOrderError, Progress

_TABLE, wrong = table()


def _looked_at(loop, handle, optimizer):
    """Checked, and not divided."""
    handle.progress[optimizer] = Progress(loop.flag_of(optimizer.gradients, optimizer.gradients))


# --- what each call does ---


@wrong(
    "CALLS-step", "nerfstudio-project/nerfacc#307: the loss is scaled and the step is the optimizer's own, 1024 times too large"
)
class StepLeavesGradientsScaled(Loop):
    def unscale_late(self, handle, optimizer):
        _looked_at(self, handle, optimizer)


@wrong("CALLS-step", "pytorch/pytorch#196195: without CUDA the scaler turns itself off, and the loss was scaled before")
class DisablesItself(Loop):
    def unscaled_gradient(self, handle, gradient):
        return gradient


@wrong("CALLS-step", "pytorch/pytorch#94060: a fused optimizer unscales by itself, also after unscale_")
class StepUnscalesAgain(Loop):
    def unscale_first(self, handle, optimizer):
        super().unscale_first(handle, optimizer)
        optimizer.early = True

    def gradients_of_step(self, handle, optimizer):
        if not getattr(optimizer, "early", False):
            return optimizer.gradients
        return [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]


@wrong("CALLS-unscale", "Lightning-AI/pytorch-lightning#9599: gradients are divided in the step, and clipped before it")
class UnscaleOnlyLooks(Loop):
    def unscale_first(self, handle, optimizer):
        _looked_at(self, handle, optimizer)
        optimizer.early = True

    def gradients_of_step(self, handle, optimizer):
        if not getattr(optimizer, "early", False):
            return optimizer.gradients
        return [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]


@wrong("CALLS-edits-kept", "not seen; a master copy is made in unscale_, and what is clipped is the other one")
class LosesEdits(Loop):
    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        optimizer.kept = list(optimizer.gradients)

    def gradients_of_step(self, handle, optimizer):
        return optimizer.kept


@wrong("CALLS-skip", "pytorch/pytorch#95781: a fused optimizer applies what nobody has looked at")
class StepDoesNotLook(Loop):
    def unscale_late(self, handle, optimizer):
        super().unscale_late(handle, optimizer)
        optimizer.late = True

    def unscale_first(self, handle, optimizer):
        super().unscale_first(handle, optimizer)
        optimizer.late = False

    def decision(self, handle, optimizer):
        return optimizer.late or super().decision(handle, optimizer)


@wrong("CALLS-skip", "pytorch/pytorch#95847: what unscale_ has found is not handed to a fused optimizer")
class LosesTheFlagOfUnscale(StepDoesNotLook):
    def decision(self, handle, optimizer):
        return not optimizer.late or Loop.decision(self, handle, optimizer)


@wrong("CALLS-flag-kept", "pytorch/pytorch#97415: step looks at the gradients again, and takes what it sees then")
class LooksAgain(Loop):
    def decision(self, handle, optimizer):
        return bool(super().all_finite(list(optimizer.gradients)))


@wrong("OVERFLOW-both-sides", "pytorch/pytorch#96755: the check sees the scaled gradients alone")
class LooksOnlyBefore(Loop):
    def flag_of(self, scaled, unscaled):
        return super().flag_of(scaled, scaled)


# --- when the scale moves, and which one is used ---


@wrong(
    "CALLS-scale-stands", "huggingface/accelerate#439: a wrapped step updates the scale before the other optimizer has used it"
)
class MovesInStep(Loop):
    def close(self, handle, optimizer, applied):
        super().close(handle, optimizer, applied)
        self.update(handle, applied)

    def flags_of_update(self, handle):
        return [flag for flag in super().flags_of_update(handle) if not any(one.stepped for one in handle.progress.values())]


@wrong("CALLS-update", "deepspeedai/DeepSpeed#8588: the scale is updated before the gradients are divided by it")
class DividesByTheNextScale(Loop):
    def unscaling_scale(self, handle):
        after = copy.copy(handle)
        self.update(after, True)
        return after.shown


@wrong("CALLS-update", "pytorch/pytorch#55562: a captured graph keeps the scale that it was captured with")
class DividesByTheFirstScale(Loop):
    def unscaling_scale(self, handle):
        return self.held(handle.rule, handle.rule.init_scale)


@wrong("CALLS-update", "not seen; a loop leaves a step out, as Haian-Jin/LVSM#19 does, and with it what unscale_ has found")
class CountsStepsAlone(Loop):
    def flags_of_update(self, handle):
        stepped = [progress.finite for progress in handle.progress.values() if progress.stepped and progress.finite is not None]
        return [all(stepped)] if stepped else []


@wrong("CALLS-update-closes", "Haian-Jin/LVSM#19: a step that is left out leaves the iteration open")
class ClosesStepsAlone(Loop):
    def forget(self, handle):
        handle.progress = {optimizer: progress for optimizer, progress in handle.progress.items() if not progress.stepped}


@wrong("CALLS-update-closes", "deepspeedai/DeepSpeed#8432: after the first overflow every step is one", capabilities=())
class FlagSticks(Loop):
    def decision(self, handle, optimizer):
        handle.stuck = getattr(handle, "stuck", False) or not super().decision(handle, optimizer)
        return not handle.stuck


@wrong("CALLS-update-closes", "not seen; a flag is overwritten by its optimizer's next, and by nothing before")
class KeepsFlagsOfThoseAtRest(Loop):
    def flags_of_update(self, handle):
        handle.last = {**getattr(handle, "last", {}), **handle.progress}
        found = [progress.finite for progress in handle.last.values() if progress.finite is not None]
        return [all(found)] if found else []


@wrong("CALLS-answer", "pytorch/pytorch#55585: nobody can know whether to step the schedule")
class TellsNothing(Loop):
    def answer(self, handle, applied):
        return None


@wrong("CALLS-answer", "huggingface/accelerate#4242: a skip inside a fused optimizer is told as a step")
class TellsOfEveryStep(Loop):
    def answer(self, handle, applied):
        return True


@wrong(
    "CALLS-answer", "not seen; found_inf is returned, as pytorch/pytorch#142472 asks for, where a caller asks for its opposite"
)
class TellsOfOverflows(Loop):
    def answer(self, handle, applied):
        return not applied


# --- what may not come ---


@wrong(
    "CALLS-unscale-once",
    "huggingface/accelerate#113: a wrapped optimizer is not known again, and its gradients are divided twice",
)
class UnscalesTwice(Loop):
    def check_unscale(self, handle, optimizer):
        if (progress := self.progress_of(handle, optimizer)) is not None and progress.stepped:
            raise OutOfOrderError("unscale_ has to come before step")


@wrong("CALLS-unscale-once", "not seen; it is seen too late, when the gradients have been divided")
class RefusesAfterDividing(Loop):
    def check_unscale(self, handle, optimizer):
        known = self.progress_of(handle, optimizer)
        if known is not None:
            optimizer.gradients = [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]
        super().check_unscale(handle, optimizer)


@wrong("CALLS-unscale-once", "not seen; a step leaves no mark that unscale_ looks at")
class UnscalesAfterAStep(Loop):
    def check_unscale(self, handle, optimizer):
        if (progress := self.progress_of(handle, optimizer)) is not None and not progress.stepped:
            raise OutOfOrderError("unscale_ has to come once")


@wrong("CALLS-step-once", "IAHispano/Applio#860: the optimizer steps by itself once more, after the scaler's step")
class StepsTwice(Loop):
    def check_step(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped and not progress.finite:
            raise OutOfOrderError("step has to come once")


@wrong("CALLS-step-once", "not seen; it is seen too late, when the optimizer has moved")
class RefusesAfterMoving(Loop):
    def check_step(self, handle, optimizer):
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped and progress.finite:
            self.move(optimizer, optimizer.gradients)
        super().check_step(handle, optimizer)


@wrong("CALLS-step-once", "not seen; a step that was skipped leaves no mark")
class StepsAfterASkip(Loop):
    def close(self, handle, optimizer, applied):
        self.progress_of(handle, optimizer).stepped = applied


@wrong("CALLS-update-needs-a-check", "Paddle 3.3.1: the flag of a fresh scaler counts as a finite step")
class UpdatesBeforeAnything(Loop):
    def check_update(self, handle):
        if getattr(handle, "updated", False):
            super().check_update(handle)

    def flags_of_update(self, handle):
        return super().flags_of_update(handle) or [True]

    def forget(self, handle):
        super().forget(handle)
        handle.updated = True


@wrong("CALLS-update-needs-a-check", "Paddle 3.3.1: the last flag stays, and each further update backs off again")
class KeepsTheLastFlag(Loop):
    def check_update(self, handle):
        if not handle.progress and not hasattr(handle, "last"):
            raise OutOfOrderError("update_scale has to follow unscale_ or step")

    def flags_of_update(self, handle):
        if handle.progress:
            handle.last = super().flags_of_update(handle)
        return list(handle.last)


# --- several optimizers ---


@wrong("CALLS-own-flag", "Paddle 3.3.1: one flag for all, which the last unscale_ overwrites")
class LastOptimizerDecides(Loop):
    def decision(self, handle, optimizer):
        return bool(list(handle.progress.values())[-1].finite)


@wrong("CALLS-own-flag", "not seen; one flag for all, so that an overflow in one half of a GAN stops the other")
class AnyOverflowSkipsAll(Loop):
    def decision(self, handle, optimizer):
        return all(progress.finite for progress in handle.progress.values())


@wrong("CALLS-own-flag", "not seen; one mark for all optimizers that their gradients are unscaled")
class OneIsUnscaledForAll(Loop):
    def must_unscale(self, handle, optimizer):
        if handle.progress and optimizer not in handle.progress:
            _looked_at(self, handle, optimizer)
        return not handle.progress


@wrong("CALLS-one-update", "Paddle 3.3.1: the flag that update goes by is overwritten by each step")
class LastOptimizerMovesTheScale(Loop):
    def flags_of_update(self, handle):
        return [bool(list(handle.progress.values())[-1].finite)]


@wrong("CALLS-one-update", "not seen; the flag that update goes by is kept from the first step")
class FirstOptimizerMovesTheScale(Loop):
    def flags_of_update(self, handle):
        return [bool(next(iter(handle.progress.values())).finite)]


@wrong("CALLS-one-update", "huggingface/accelerate#439, neosr-project/neosr#9: the scale is updated after each optimizer's step")
class MovesForEachOptimizer(Loop):
    def flags_of_update(self, handle):
        return [bool(progress.finite) for progress in handle.progress.values()]


# --- parameters without a gradient ---


@wrong("CALLS-none", "tensorflow/tensorflow#27655: None goes into the check, and is an error there")
class FailsOnNone(Loop):
    def unscaled_gradient(self, handle, gradient):
        if gradient is None:
            raise TypeError("a gradient must be an array, got None")
        return super().unscaled_gradient(handle, gradient)


@wrong("CALLS-none", "not seen; zeros stand in for a gradient that is not there, and momentum moves by them")
class FillsInZeros(Loop):
    def unscaled_gradient(self, handle, gradient):
        return np.zeros(1, np.float32) if gradient is None else super().unscaled_gradient(handle, gradient)


@wrong("CALLS-no-gradients", "nerfstudio-project/nerfstudio#1919: no inf checks were recorded for this optimizer")
class RefusesAStepOfNothing(Loop):
    def decision(self, handle, optimizer):
        if self.progress_of(handle, optimizer).finite is None:
            raise AssertionError("no gradients were checked")
        return super().decision(handle, optimizer)


@wrong("CALLS-no-gradients", "huggingface/accelerate#357: no inf checks were recorded prior to update")
class RefusesAnUpdateOfNothing(Loop):
    def check_update(self, handle):
        super().check_update(handle)
        if all(progress.finite is None for progress in handle.progress.values()):
            raise AssertionError("no gradients were checked")


@wrong("CALLS-no-gradients", "not seen; what has no flag is taken for an overflow")
class TakesNothingForAnOverflow(Loop):
    def flags_of_update(self, handle):
        return [all(progress.finite for progress in handle.progress.values())]


@wrong("CALLS-no-gradients", "not seen; an optimizer without a flag ends the update for all")
class NothingHoldsTheScale(Loop):
    def flags_of_update(self, handle):
        missing = any(progress.finite is None for progress in handle.progress.values())
        return [] if missing else super().flags_of_update(handle)


MUTANTS = tuple(_TABLE)
