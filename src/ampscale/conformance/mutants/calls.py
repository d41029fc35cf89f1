"""Chapter 55, calls: hand-written loops, wrong in one way each."""

import copy
from typing import Any

import numpy as np

from . import Mutant, wrong
from .loop import Loop, OutOfOrderError, Progress

_TABLE: list[Mutant] = []


def _looked_at(loop: Loop, handle: Any, optimizer: Any) -> None:
    """Checked, and not divided."""
    handle.progress[optimizer] = Progress(loop.flag_of(optimizer.gradients, optimizer.gradients))


# --- what each call does ---


@wrong(_TABLE, "CALLS-step", "float64 gradients go into the step as they are, still scaled: Paddle 3.3.1")
class StepLeavesGradientsScaled(Loop):
    def unscale_late(self, handle: Any, optimizer: Any) -> None:
        _looked_at(self, handle, optimizer)


@wrong(_TABLE, "CALLS-step", "no CUDA, so the scaler turns itself off, and the loss was scaled elsewhere: pytorch/pytorch#196195")
class DisablesItself(Loop):
    def unscaled_gradient(self, handle: Any, gradient: Any) -> Any:
        return gradient


@wrong(_TABLE, "CALLS-step", "a fused optimizer unscales by itself, also after unscale_: pytorch/pytorch#94060")
class StepUnscalesAgain(Loop):
    def unscale_first(self, handle: Any, optimizer: Any) -> None:
        super().unscale_first(handle, optimizer)
        optimizer.early = True

    def gradients_of_step(self, handle: Any, optimizer: Any) -> Any:
        if not getattr(optimizer, "early", False):
            return optimizer.gradients
        return [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]


@wrong(_TABLE, "CALLS-unscale", "gradients are divided in the step, and clipped before it: Lightning-AI/pytorch-lightning#9599")
class UnscaleOnlyLooks(Loop):
    def unscale_first(self, handle: Any, optimizer: Any) -> None:
        _looked_at(self, handle, optimizer)
        optimizer.early = True

    def gradients_of_step(self, handle: Any, optimizer: Any) -> Any:
        if not getattr(optimizer, "early", False):
            return optimizer.gradients
        return [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]


@wrong(_TABLE, "CALLS-edits-kept", "gradients are clipped after they were handed over: Deci-AI/super-gradients#653")
class LosesEdits(Loop):
    def unscale_now(self, handle: Any, optimizer: Any) -> None:
        super().unscale_now(handle, optimizer)
        optimizer.kept = list(optimizer.gradients)

    def gradients_of_step(self, handle: Any, optimizer: Any) -> Any:
        return optimizer.kept


@wrong(_TABLE, "CALLS-skip", "a fused optimizer is not told what was found: pytorch/pytorch#90752")
class StepDoesNotLook(Loop):
    def unscale_late(self, handle: Any, optimizer: Any) -> None:
        super().unscale_late(handle, optimizer)
        optimizer.late = True

    def unscale_first(self, handle: Any, optimizer: Any) -> None:
        super().unscale_first(handle, optimizer)
        optimizer.late = False

    def decision(self, handle: Any, optimizer: Any) -> bool:
        return optimizer.late or super().decision(handle, optimizer)


@wrong(_TABLE, "CALLS-skip", "what unscale_ has found is not handed to a fused optimizer: pytorch/pytorch#95847")
class LosesTheFlagOfUnscale(StepDoesNotLook):
    def decision(self, handle: Any, optimizer: Any) -> bool:
        return not optimizer.late or Loop.decision(self, handle, optimizer)


@wrong(_TABLE, "CALLS-flag-kept", "step looks at the gradients again, and takes what it sees now: pytorch/pytorch#97415")
class LooksAgain(Loop):
    def decision(self, handle: Any, optimizer: Any) -> bool:
        return bool(super().all_finite(list(optimizer.gradients)))


@wrong(_TABLE, "OVERFLOW-both-sides", "the check sees the scaled gradients alone: pytorch/pytorch#96755")
class LooksOnlyBefore(Loop):
    def flag_of(self, scaled: Any, unscaled: Any) -> bool | None:
        return super().flag_of(scaled, scaled)


# --- when the scale moves, and which one is used ---


@wrong(
    _TABLE, "CALLS-scale-stands", "the scale is updated within the step, before others have used it: deepspeedai/DeepSpeed#8588"
)
class MovesInStep(Loop):
    def close(self, handle: Any, optimizer: Any, applied: bool) -> None:
        super().close(handle, optimizer, applied)
        self.update(handle, applied)

    def flags_of_update(self, handle: Any) -> list[bool]:
        return [flag for flag in super().flags_of_update(handle) if not any(one.stepped for one in handle.progress.values())]


@wrong(_TABLE, "CALLS-update", "the scale is updated before the gradients are divided by it: deepspeedai/DeepSpeed#8588")
class DividesByTheNextScale(Loop):
    def unscaling_scale(self, handle: Any) -> Any:
        after = copy.copy(handle)
        self.update(after, True)
        return after.shown


@wrong(
    _TABLE,
    "CALLS-update",
    "the reciprocal is computed once: the scale does not move inside a captured graph, pytorch/pytorch#55562",
)
class DividesByTheFirstScale(Loop):
    def unscaling_scale(self, handle: Any) -> Any:
        return self.held(handle.rule, handle.rule.init_scale)


@wrong(_TABLE, "CALLS-update", "only what was stepped is asked for its flag: Haian-Jin/LVSM#19 skips steps on purpose")
class CountsStepsAlone(Loop):
    def flags_of_update(self, handle: Any) -> list[bool]:
        stepped = [progress.finite for progress in handle.progress.values() if progress.stepped and progress.finite is not None]
        return [all(stepped)] if stepped else []


@wrong(_TABLE, "CALLS-update-closes", "a step that is left out leaves the iteration open: Haian-Jin/LVSM#19")
class ClosesStepsAlone(Loop):
    def forget(self, handle: Any) -> None:
        handle.progress = {optimizer: progress for optimizer, progress in handle.progress.items() if not progress.stepped}


@wrong(
    _TABLE,
    "CALLS-update-closes",
    "the flag of an overflow is never cleared: a muon step is spoilt for good, deepspeedai/DeepSpeed#8435",
)
class FlagSticks(Loop):
    def decision(self, handle: Any, optimizer: Any) -> bool:
        handle.stuck = getattr(handle, "stuck", False) or not super().decision(handle, optimizer)
        return not handle.stuck


@wrong(_TABLE, "CALLS-answer", "an update of the scale is no sign of a step: pytorch/pytorch#55585")
class TellsNothing(Loop):
    def answer(self, handle: Any, applied: bool) -> Any:
        return None


@wrong(_TABLE, "CALLS-answer", "a skip inside a fused optimizer is told as a step: huggingface/accelerate#4242")
class TellsOfEveryStep(Loop):
    def answer(self, handle: Any, applied: bool) -> Any:
        return True


@wrong(_TABLE, "CALLS-answer", "found_inf is returned where the caller asks whether there was a step: pytorch/pytorch#142472")
class TellsOfOverflows(Loop):
    def answer(self, handle: Any, applied: bool) -> Any:
        return not applied


# --- what may not come ---


@wrong(_TABLE, "CALLS-unscale-once", "a wrapped optimizer is not known again, and unscaled twice: huggingface/accelerate#113")
class UnscalesTwice(Loop):
    def check_unscale(self, handle: Any, optimizer: Any) -> None:
        if (progress := self.progress_of(handle, optimizer)) is not None and progress.stepped:
            raise OutOfOrderError("unscale_ has to come before step")


@wrong(_TABLE, "CALLS-unscale-once", "it is caught too late: gradients are divided while the optimizer is looked up")
class RefusesAfterDividing(Loop):
    def check_unscale(self, handle: Any, optimizer: Any) -> None:
        known = self.progress_of(handle, optimizer)
        if known is not None:
            optimizer.gradients = [self.unscaled_gradient(handle, gradient) for gradient in optimizer.gradients]
        super().check_unscale(handle, optimizer)


@wrong(_TABLE, "CALLS-unscale-once", "a step leaves no mark that unscale_ looks at: NVIDIA/apex unscales on leaving scale_loss")
class UnscalesAfterAStep(Loop):
    def check_unscale(self, handle: Any, optimizer: Any) -> None:
        if (progress := self.progress_of(handle, optimizer)) is not None and not progress.stepped:
            raise OutOfOrderError("unscale_ has to come once")


@wrong(_TABLE, "CALLS-step-once", "minimize after step steps again: Paddle 3.3.1")
class StepsTwice(Loop):
    def check_step(self, handle: Any, optimizer: Any) -> None:
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped and not progress.finite:
            raise OutOfOrderError("step has to come once")


@wrong(_TABLE, "CALLS-step-once", "it is caught too late: the optimizer has moved when the order is looked at")
class RefusesAfterMoving(Loop):
    def check_step(self, handle: Any, optimizer: Any) -> None:
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped and progress.finite:
            self.move(optimizer, optimizer.gradients)
        super().check_step(handle, optimizer)


@wrong(_TABLE, "CALLS-step-once", "a skipped step leaves no mark: the batch is tried again by hand")
class StepsAfterASkip(Loop):
    def close(self, handle: Any, optimizer: Any, applied: bool) -> None:
        self.progress_of(handle, optimizer).stepped = applied


@wrong(_TABLE, "CALLS-update-needs-a-check", "the flag of a fresh scaler is False, and counts as a finite step: Paddle 3.3.1")
class UpdatesBeforeAnything(Loop):
    def check_update(self, handle: Any) -> None:
        if getattr(handle, "updated", False):
            super().check_update(handle)

    def flags_of_update(self, handle: Any) -> list[bool]:
        return super().flags_of_update(handle) or [True]

    def forget(self, handle: Any) -> None:
        super().forget(handle)
        handle.updated = True


@wrong(_TABLE, "CALLS-update-needs-a-check", "the last flag stays, and each further update backs off again: Paddle 3.3.1")
class KeepsTheLastFlag(Loop):
    def check_update(self, handle: Any) -> None:
        if not handle.progress and not hasattr(handle, "last"):
            raise OutOfOrderError("update_scale has to follow unscale_ or step")

    def flags_of_update(self, handle: Any) -> list[bool]:
        if handle.progress:
            handle.last = super().flags_of_update(handle)
        return list(handle.last)


# --- several optimizers ---


@wrong(_TABLE, "CALLS-own-flag", "one flag for all, which the last unscale_ overwrites: Paddle 3.3.1")
class LastOptimizerDecides(Loop):
    def decision(self, handle: Any, optimizer: Any) -> bool:
        return bool(list(handle.progress.values())[-1].finite)


@wrong(
    _TABLE, "CALLS-own-flag", "one flag for all: an overflow of one GAN's half skips the other's step too, neosr-project/neosr#9"
)
class AnyOverflowSkipsAll(Loop):
    def decision(self, handle: Any, optimizer: Any) -> bool:
        return all(progress.finite for progress in handle.progress.values())


@wrong(_TABLE, "CALLS-own-flag", "one mark for all that gradients are unscaled: galilai-group/stable-pretraining#333")
class OneIsUnscaledForAll(Loop):
    def must_unscale(self, handle: Any, optimizer: Any) -> bool:
        if handle.progress and optimizer not in handle.progress:
            _looked_at(self, handle, optimizer)
        return not handle.progress


@wrong(_TABLE, "CALLS-one-update", "the flag that update goes by is overwritten by each step: Paddle 3.3.1")
class LastOptimizerMovesTheScale(Loop):
    def flags_of_update(self, handle: Any) -> list[bool]:
        return [bool(list(handle.progress.values())[-1].finite)]


@wrong(_TABLE, "CALLS-one-update", "only the first optimizer's scaler is updated: NVIDIA/apex#232")
class FirstOptimizerMovesTheScale(Loop):
    def flags_of_update(self, handle: Any) -> list[bool]:
        return [bool(next(iter(handle.progress.values())).finite)]


@wrong(_TABLE, "CALLS-one-update", "each optimizer's step counts as a step of its own: OpenBMB/BMTrain#39")
class MovesForEachOptimizer(Loop):
    def flags_of_update(self, handle: Any) -> list[bool]:
        return [bool(progress.finite) for progress in handle.progress.values()]


# --- parameters without a gradient ---


@wrong(_TABLE, "CALLS-none", "None goes into the check and is an error: tensorflow/tensorflow#27655")
class FailsOnNone(Loop):
    def unscaled_gradient(self, handle: Any, gradient: Any) -> Any:
        if gradient is None:
            raise TypeError("a gradient must be an array, got None")
        return super().unscaled_gradient(handle, gradient)


@wrong(
    _TABLE, "CALLS-none", "zeros stand in for a gradient that is not there, and decay what they meet: tensorflow/tensorflow#27655"
)
class FillsInZeros(Loop):
    def unscaled_gradient(self, handle: Any, gradient: Any) -> Any:
        return np.zeros(1, np.float32) if gradient is None else super().unscaled_gradient(handle, gradient)


@wrong(_TABLE, "CALLS-no-gradients", "no inf checks were recorded for this optimizer: nerfstudio-project/nerfstudio#1919")
class RefusesAStepOfNothing(Loop):
    def decision(self, handle: Any, optimizer: Any) -> bool:
        if self.progress_of(handle, optimizer).finite is None:
            raise AssertionError("no gradients were checked")
        return super().decision(handle, optimizer)


@wrong(_TABLE, "CALLS-no-gradients", "no inf checks were recorded prior to update: SheldonTsui/GOF_NeurIPS2021#2")
class RefusesAnUpdateOfNothing(Loop):
    def check_update(self, handle: Any) -> None:
        super().check_update(handle)
        if all(progress.finite is None for progress in handle.progress.values()):
            raise AssertionError("no gradients were checked")


@wrong(_TABLE, "CALLS-no-gradients", "what has no flag is taken for an overflow: thisserand/alpaca-lora-finetune-language#4")
class TakesNothingForAnOverflow(Loop):
    def flags_of_update(self, handle: Any) -> list[bool]:
        return [all(progress.finite for progress in handle.progress.values())]


@wrong(
    _TABLE,
    "CALLS-no-gradients",
    "an optimizer without a flag ends the update for all: a frozen half of a GAN, neosr-project/neosr#31",
)
class NothingHoldsTheScale(Loop):
    def flags_of_update(self, handle: Any) -> list[bool]:
        missing = any(progress.finite is None for progress in handle.progress.values())
        return [] if missing else super().flags_of_update(handle)


MUTANTS = tuple(_TABLE)
