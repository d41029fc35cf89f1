"""Mutants of chapter 30: the fields of a rule that few scalers use, and arithmetic."""

import numpy as np

from . import table
from .plain import Plain

VARIANTS, breaks = table()

# --- fields that few scalers use


@breaks("MACHINE-initial-good-steps", "DeepSpeed 0.19.8 written as torch's rule: the first window is not longer", "deepspeed")
class IgnoresInitialGoodStepsAtFirst(Plain):
    def first_count(self, rule):
        return 0


@breaks("MACHINE-initial-good-steps", "DeepSpeed 0.19.8 written with a longer first window only", "deepspeed")
class IgnoresInitialGoodStepsAfterAnOverflow(Plain):
    def count_after_overflow(self, handle):
        return 0


@breaks("MACHINE-initial-good-steps", "flax 0.12.8: every window is one step longer", "deepspeed")
class UsesInitialGoodStepsAfterAGrowth(Plain):
    def count_after_growth(self, handle):
        return self.first_count(handle.rule)


@breaks(
    "MACHINE-block-at-bounds", "Apex before May 2025: a maximum that clamps, in a scaler that claims to be BMTrain's", "bmtrain"
)
class ClampsAtTheMaximum(Plain):
    def grown(self, handle):
        return min(super().grown(handle), self.rounded(handle.rule, handle.rule.max_scale or np.inf))


@breaks(
    "MACHINE-block-at-bounds", "Apex before May 2025: a minimum that clamps, in a scaler that claims to be BMTrain's", "bmtrain"
)
class ClampsAtTheMinimum(Plain):
    def backed_off(self, handle):
        return max(super().backed_off(handle), self.rounded(handle.rule, handle.rule.min_scale))


@breaks(
    "MACHINE-block-at-bounds",
    "most scalers: an overflow restarts the window, which BMTrain 1.0.1 continues if the scale is unchanged",
    "bmtrain",
)
class ResetsGoodStepsAtABlockedBackoff(Plain):
    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.good = 0


@breaks(
    "MACHINE-overflow-tolerance",
    "fairseq 0.12.2: a tolerance of 0 is its default, and the case that is usually tested",
    "fairseq_tolerance",
)
class ToleratesNoOverflow(Plain):
    def backoff_due(self, handle, bad, since):
        return True


@breaks(
    "MACHINE-overflow-tolerance",
    "not observed: the share is computed from the finite steps instead of all steps",
    "fairseq_tolerance",
)
class DividesByTheFiniteSteps(Plain):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, max(since - bad, 1))


@breaks(
    "MACHINE-overflow-tolerance",
    "fairseq 0.12.2 stores two step numbers, of the last rescale and of the last overflow",
    "fairseq_tolerance",
)
class KeepsWindowStepsOverAGrowth(Plain):
    def finite_step(self, handle):
        since = handle.since + 1
        super().finite_step(handle)
        handle.since = since


@breaks(
    "MACHINE-overflow-tolerance",
    "fairseq 0.12.2 stores two step numbers, of the last rescale and of the last overflow",
    "fairseq_tolerance",
)
class KeepsWindowStepsOverABackoff(Plain):
    def overflow_step(self, handle):
        since = handle.since + 1
        super().overflow_step(handle)
        handle.since = since


@breaks(
    "MACHINE-delayed-update",
    "every other scaler: a change takes effect in the next step, and not one step later as in MXNet 1.9.1",
    "mxnet",
)
class IgnoresTheDelay(Plain):
    def is_delayed(self, handle):
        return False


@breaks("MACHINE-warmup-growth-factor", "Chainer 7.8.1 described by its interval only", "chainer", capabilities=())
class GrowsSlowlyFromTheFirstStep(Plain):
    def growth_factor(self, handle):
        return float(handle.rule.growth_factor)


@breaks("MACHINE-warmup-growth-factor", "chainer/chainer#6337: the scale doubles at every step until it overflows", "chainer")
class DoublesAfterTheFirstOverflow(Plain):
    def growth_factor(self, handle):
        return float(handle.rule.warmup_growth_factor)


@breaks("MACHINE-would-raise", "facebookresearch/metaseq#115: the scale stays at its minimum and no error is raised", "fairseq2")
class ContinuesAtTheMinimum(Plain):
    def would_raise(self, handle, due, scale):
        return False


@breaks(
    "MACHINE-would-raise",
    "deepspeedai/DeepSpeed#1599: an error about the minimum scale, although the hysteresis postponed the backoff",
    "deepspeed",
)
class RaisesBeforeTheHysteresis(Plain):
    def would_raise(self, handle, due, scale):
        return bool(handle.scale <= handle.rule.min_scale)


@breaks("MACHINE-would-raise", "fairseq2 0.8.1 raises an error below its minimum, fairseq 0.12.2 at its minimum", "fairseq")
class RaisesOnlyBelowItsLimit(Plain):
    def would_raise(self, handle, due, scale):
        return bool(scale < handle.rule.raise_at_or_below)


# --- arithmetic


@breaks("MACHINE-arithmetic", "torch 2.13.0: only the product is rounded, in a scaler that claims to be Paddle's", "paddle")
class RoundsTheProductAlone(Plain):
    def operand(self, handle, value):
        return np.float64(value)


@breaks("MACHINE-arithmetic", "jmp 0.0.4: it divides, but multiplies by a reciprocal when compiled", "jmp_jit")
class DividesInsteadOfMultiplying(Plain):
    def reduced(self, handle):
        return self.divided(handle, handle.rule.growth_factor)


@breaks("MACHINE-float64-factor", "torch 2.13.0: its ShardedGradScaler rounds the factor if the scale is on the CPU", "torch")
class RoundsTheFactorFirst(Plain):
    def operand(self, handle, value):
        return np.float32(value)


@breaks(
    "MACHINE-divide-on-backoff",
    "MindSpore 2.10.0: one of its two scalers divides, the other multiplies by a reciprocal",
    "mindspore",
)
class MultipliesInsteadOfDividing(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, handle.rule.backoff_factor)


@breaks("MACHINE-divide-on-backoff", "1/(1/49) is 49.00000000000001; Apex before May 2025 received 49", "apex_fp16_utils")
class DividesByTheReciprocalOfItsReciprocal(Plain):
    def reduced(self, handle):
        return self.divided(handle, 1 / handle.rule.backoff_factor)


@breaks("MACHINE-float64-factor", "planted: the scale is divided by the reciprocal of the factor, rounded to float32", "torch")
class DividesByARoundedReciprocal(Plain):
    def reduced(self, handle):
        return np.float32(handle.scale / np.float32(1 / handle.rule.backoff_factor))


@breaks("MACHINE-would-raise", "planted: the limit must be crossed: a scale that was loaded below it raises no error", "fairseq")
class RaisesWhenItCrossesItsLimit(Plain):
    def would_raise(self, handle, due, scale):
        return super().would_raise(handle, due, scale) and handle.scale > handle.rule.raise_at_or_below


@breaks("MACHINE-would-raise", "planted: the counts are reset before the error is raised", "deepspeed")
class ResetsCountsBeforeItRaises(Plain):
    def would_raise(self, handle, due, scale):
        raises = super().would_raise(handle, due, scale)
        handle.bad = 0 if raises else handle.bad
        return raises


@breaks("MACHINE-would-raise", "planted: the reduced scale is not restored before the error is raised", "fairseq")
class BacksOffAndRaises(Plain):
    def would_raise(self, handle, due, scale):
        raises = super().would_raise(handle, due, scale)
        handle.shown = handle.scale = scale if raises else handle.scale
        return raises


# --- the edges of a range


@breaks("MACHINE-every-sequence", "planted: a scale of zero is taken for a missing one", "torch")
class RestartsFromZero(Plain):
    def reduced(self, handle):
        return super().reduced(handle) or self.rounded(handle.rule, handle.rule.init_scale)


@breaks("MACHINE-every-sequence", "planted: a product is compared with the largest float32 before it is rounded", "torch")
class SkipsAGrowthToTheLargestScale(Plain):
    def grown(self, handle):
        exact = float(handle.scale) * handle.rule.growth_factor
        return super().grown(handle) if exact <= float(np.finfo(np.float32).max) else handle.scale


@breaks("MACHINE-every-sequence", "planted: the steps of a share of overflows are counted in one byte", "fairseq_tolerance")
class CountsTheStepsOfAShareInOneByte(Plain):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, since % 256 or 1)


@breaks("STEP-resume", "planted: a saved scale of zero is taken for a missing one", "torch")
class LoadsNoZero(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.scale = handle.scale or self.rounded(rule, rule.init_scale)
        return handle
