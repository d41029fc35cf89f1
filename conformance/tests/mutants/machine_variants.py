"""Wrong machines of some families: offset, gate, rate, lag, stop, first growth factor; and arithmetic."""

import numpy as np

from . import table
from .plain import Plain

VARIANTS, wrong = table()

# --- axes that few scalers have


@wrong("MACHINE-initial-good-steps", "DeepSpeed 0.19.8 restated as torch's rule: all windows alike at first", "deepspeed")
class ForgetsTheOffsetAtFirst(Plain):
    def first_count(self, rule):
        return 0


@wrong("MACHINE-initial-good-steps", "DeepSpeed 0.19.8 restated with a longer first window alone", "deepspeed")
class ForgetsTheOffsetAfterAnOverflow(Plain):
    def count_after_overflow(self, handle):
        return 0


@wrong("MACHINE-initial-good-steps", "flax 0.12.8: every window is one step longer", "deepspeed")
class HasTheOffsetAfterAGrowthToo(Plain):
    def count_after_growth(self, handle):
        return self.first_count(handle.rule)


@wrong("MACHINE-block-at-bounds", "Apex before May 2025: a maximum that clamps, in what says that it is BMTrain's", "bmtrain")
class ClampsAtTheMaximum(Plain):
    def grown(self, handle):
        return min(super().grown(handle), self.held(handle.rule, handle.rule.max_scale or np.inf))


@wrong("MACHINE-block-at-bounds", "Apex before May 2025: a minimum that clamps, in what says that it is BMTrain's", "bmtrain")
class ClampsAtTheMinimum(Plain):
    def backed_off(self, handle):
        return max(super().backed_off(handle), self.held(handle.rule, handle.rule.min_scale))


@wrong(
    "MACHINE-block-at-bounds",
    "most scalers: an overflow ends the window, which BMTrain 1.0.1 keeps where nothing moved",
    "bmtrain",
)
class EndsTheWindowBehindAGate(Plain):
    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.good = 0


@wrong(
    "MACHINE-overflow-tolerance",
    "fairseq 0.12.2: a tolerance of 0 is its default, and the one that is tried",
    "fairseq_tolerance",
)
class ToleratesNoOverflow(Plain):
    def backoff_due(self, handle, bad, since):
        return True


@wrong("MACHINE-overflow-tolerance", "not seen; a share of the finite steps instead of all", "fairseq_tolerance")
class TakesTheShareOfFiniteSteps(Plain):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, max(since - bad, 1))


@wrong(
    "MACHINE-overflow-tolerance",
    "fairseq 0.12.2 keeps two step numbers, of the last rescale and the last overflow",
    "fairseq_tolerance",
)
class CountsTheShareOverAGrowth(Plain):
    def finite_step(self, handle):
        since = handle.since + 1
        super().finite_step(handle)
        handle.since = since


@wrong(
    "MACHINE-overflow-tolerance",
    "fairseq 0.12.2 keeps two step numbers, of the last rescale and the last overflow",
    "fairseq_tolerance",
)
class CountsTheShareOverABackoff(Plain):
    def overflow_step(self, handle):
        since = handle.since + 1
        super().overflow_step(handle)
        handle.since = since


@wrong(
    "MACHINE-delayed-update",
    "every other scaler: a change is in force in the next step, where MXNet 1.9.1 waits one more",
    "mxnet",
)
class ForgetsTheLag(Plain):
    def lags(self, handle):
        return False


@wrong("MACHINE-warmup-growth-factor", "Chainer 7.8.1 restated by its interval alone", "chainer", capabilities=())
class GrowsSlowlyFromTheFirstStep(Plain):
    def growth_factor(self, handle):
        return float(handle.rule.growth_factor)


@wrong("MACHINE-warmup-growth-factor", "chainer/chainer#6337: what doubles at every step until it overflows", "chainer")
class DoublesForEver(Plain):
    def growth_factor(self, handle):
        return float(handle.rule.warmup_growth_factor)


@wrong("MACHINE-would-raise", "facebookresearch/metaseq#115: it stays at its minimum instead of raising", "fairseq2")
class GoesOnAtTheMinimum(Plain):
    def gives_up(self, handle, due, scale):
        return False


@wrong(
    "MACHINE-would-raise",
    "deepspeedai/DeepSpeed#1599: a scale said to be at its minimum, which patience would have kept",
    "deepspeed",
)
class GivesUpWithoutPatience(Plain):
    def gives_up(self, handle, due, scale):
        return bool(handle.scale <= handle.rule.min_scale)


@wrong("MACHINE-would-raise", "fairseq2 0.8.1: it gives up below its minimum, where fairseq 0.12.2 does at it", "fairseq")
class GivesUpOnlyBelowItsLimit(Plain):
    def gives_up(self, handle, due, scale):
        return bool(scale < handle.rule.raise_at_or_below)


# --- arithmetic


@wrong("MACHINE-arithmetic", "torch 2.13.0: the product in float64, in what says that it is Paddle's", "paddle")
class RoundsTheProductAlone(Plain):
    def operand(self, handle, value):
        return np.float64(value)


@wrong("MACHINE-arithmetic", "jmp 0.0.4: it divides, and multiplies by a reciprocal once it is compiled", "jmp_jit")
class DividesWhereItMultiplies(Plain):
    def reduced(self, handle):
        return self.divided(handle, handle.rule.growth_factor)


@wrong("MACHINE-float64-factor", "torch 2.13.0: its ShardedGradScaler rounds the factor where the scale is on the CPU", "torch")
class RoundsTheFactorFirst(Plain):
    def operand(self, handle, value):
        return np.float32(value)


@wrong(
    "MACHINE-divide-on-backoff",
    "MindSpore 2.10.0: of its two machines one divides, and the other multiplies by a reciprocal",
    "mindspore",
)
class MultipliesWhereItDivides(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, handle.rule.backoff_factor)


@wrong("MACHINE-divide-on-backoff", "1/(1/49) is 49.00000000000001; Apex before May 2025 was given 49", "apex_fp16_utils")
class DividesByTheReciprocalOfItsReciprocal(Plain):
    def reduced(self, handle):
        return self.divided(handle, 1 / handle.rule.backoff_factor)
