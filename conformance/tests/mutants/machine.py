"""Mutants of chapter 30: growth, backoff and their bounds."""

import numpy as np

from ampscale import LossScaleRule

from . import table
from .machine_handles import HANDLES
from .machine_hysteresis import HYSTERESIS
from .machine_variants import VARIANTS
from .plain import EVERY_SETTING, Plain

MACHINES, breaks = table()

# --- initial state


@breaks("MACHINE-state", "huggingface/transformers#34053: training continued from 65536 instead of 256")
class StartsAtNoLessThanItsDefault(Plain):
    def create(self, rule, **options):
        handle = super().create(rule)
        handle.scale = handle.shown = max(handle.scale, self.rounded(rule, EVERY_SETTING.init_scale))
        return handle


@breaks("MACHINE-state", "google-deepmind/jmp#47: the published example stores a float16 scale", capabilities=())
class StoresTheScaleInFloat16(Plain):
    def rounded(self, rule, scale):
        with np.errstate(over="ignore"):
            return np.float32(np.float16(scale))


@breaks("MACHINE-state", "not observed: the scale is a bfloat16, instead of the float16 of google-deepmind/jmp#47")
class StoresTheScaleInBfloat16(Plain):
    def rounded(self, rule, scale):
        with np.errstate(over="ignore"):
            bits = np.float32(scale).view(np.uint32)
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)


@breaks("MACHINE-state", "MindSpore 2.10.0: the scaler uses float32, its manager float64", "deepspeed")
class StoresTheScaleInFloat32(Plain):
    def rounded(self, rule, scale):
        return np.float32(scale)


@breaks("MACHINE-state", "Paddle 3.3.1: an initial scale of the str '1024' is accepted, and returned as a str")
class ReturnsTheScaleAsText(Plain):
    def read_scale(self, handle):
        return str(handle.shown)


@breaks("MACHINE-state", "Paddle 3.3.1: the scale has shape (1,), which NumPy 2.4 does not convert to a float")
class ReturnsTheScaleInAList(Plain):
    def read_scale(self, handle):
        return [float(handle.shown)]


# --- growth


@breaks("MACHINE-growth-window", "flax 0.12.8: DynamicScale grows one step after its interval")
class GrowsOneStepLate(Plain):
    def window(self, handle):
        return super().window(handle) + 1


@breaks("MACHINE-growth-window", "fairscale 0.4.13: if it is called like torch's scaler, its next growth is one step early")
class GrowsOneStepEarly(Plain):
    def window(self, handle):
        return super().window(handle) - 1


@breaks("MACHINE-growth-window", "DeepSpeed 0.19.8: its first window is one step longer than the others")
class FirstWindowIsOneStepLonger(Plain):
    def first_count(self, rule):
        return super().first_count(rule) - 1


@breaks("MACHINE-growth-window", "planted: a short first window is one step longer, since the count begins below zero")
class FirstShortWindowIsLonger(Plain):
    def first_count(self, rule):
        return super().first_count(rule) - (1 < rule.growth_interval < 10)


@breaks(
    "MACHINE-growth-window",
    "Keras 3.15.1: an equality test with the count before the step, which an interval of 0 never satisfies",
)
class NeverGrowsInTwoConsecutiveSteps(Plain):
    def window(self, handle):
        return max(super().window(handle), 2)


@breaks("MACHINE-growth-window", "not observed: a narrow integer type saves device memory")
class CountsInEightBits(Plain):
    def growth_due(self, handle):
        handle.good = (handle.good + 128) % 256 - 128
        return super().growth_due(handle)


@breaks("MACHINE-growth-window", "sophgo/torch-tpu at 1aa8cdb: Amp_update_scale tested the address of the flag")
class TreatsEveryStepAsAnOverflow(Plain):
    def was_finite(self, handle, finite):
        return False


@breaks("MACHINE-growth-factor", "Apex before May 2025: amp's LossScaler ignores its factor argument and doubles")
class DoublesWhateverItsFactor(Plain):
    def growth_factor(self, handle):
        return 2.0


@breaks("MACHINE-growth-factor", "Apex before May 2025: the default maximum is 2**24", "deepspeed")
class GrowsToTwoToThe24(Plain):
    def clamped_to_max(self, handle, grown):
        return min(grown, self.rounded(handle.rule, 2.0**24))


@breaks("MACHINE-growth-factor", "not observed: additive increase, as in network congestion control")
class GrowsByAddition(Plain):
    def grown(self, handle):
        return self.clamped_to_max(handle, handle.scale + self.rounded(handle.rule, handle.rule.init_scale))


@breaks("MACHINE-growth-resets", "fairseq 0.12.2: after a caught FloatingPointError it grows in the very next step")
class GrowsInEveryStepAfterAGrowth(Plain):
    def count_after_growth(self, handle):
        return int(handle.good)


@breaks("MACHINE-growth-resets", "fairscale 0.4.13: a step is counted twice, and the window is one step short")
class CountsTheGrowthInTheNextWindow(Plain):
    def count_after_growth(self, handle):
        return 1


@breaks(
    "MACHINE-skip-infinite-growth",
    "google/flax#2547 and pytorch/pytorch#98828: the scale grew to infinity and stayed there",
    "torch",
)
class GrowsToInfinity(Plain):
    def skip_infinite(self, handle, grown):
        return grown


@breaks("MACHINE-skip-infinite-growth", "flax 0.12.8: a growth beyond float32 gives the largest float32", "tf_keras")
class GrowsToTheLargestFloat32(Plain):
    def skip_infinite(self, handle, grown):
        return min(grown, np.finfo(np.float32).max)


@breaks(
    "MACHINE-skip-infinite-growth",
    "Paddle 3.3.1: an equality test, which a count beyond the threshold never satisfies again",
    "torch",
)
class StaysAtTheTop(Plain):
    def may_grow(self, handle):
        handle.stuck = getattr(handle, "stuck", False) or np.isinf(self.multiplied(handle, self.growth_factor(handle)))
        return not handle.stuck


@breaks(
    "MACHINE-skip-infinite-growth",
    "torch 2.13.0: it skips infinite growth, which Keras 3.15.1 does not, in a scaler that claims to be Keras's",
    "keras",
)
class SkipsInfiniteGrowthAlways(Plain):
    def skip_infinite(self, handle, grown):
        return handle.scale if np.isinf(grown) else grown


@breaks(
    "MACHINE-skip-infinite-growth",
    "planted: a float64 scale is compared with the largest float32",
    LossScaleRule(1024.0, dtype="float64"),
)
class SkipsGrowthBeyondFloat32(Plain):
    def skip_infinite(self, handle, grown):
        return handle.scale if grown > np.finfo(np.float32).max else grown


@breaks(
    "MACHINE-skip-infinite-growth",
    "planted: a product beyond the largest float64 raises an error, as 2.0**1024 does in Python",
    LossScaleRule(1024.0, dtype="float64"),
)
class RaisesAnErrorAtAnInfiniteGrowth(Plain):
    def skip_infinite(self, handle, grown):
        return grown if np.isfinite(grown) else 2.0**1024


@breaks("MACHINE-skip-infinite-growth", "planted: the scale is a Python float, which exceeds 2**128", "megatron")
class GrowsBeyondFloat32(Plain):
    def rounded(self, rule, scale):
        return np.float64(scale)


@breaks("MACHINE-skip-infinite-growth", "planted: a growth beyond 3.4e38, almost the largest float32, is skipped", "torch")
class SkipsGrowthsBeyondARoundedLimit(Plain):
    def skip_infinite(self, handle, grown):
        return grown if grown < 3.4e38 else handle.scale


@breaks(
    "MACHINE-max-scale", "ColossalAI 0.5.0: plugins with a maximum of 2**32 or 2**24, whatever the setting of the scaler", "apex"
)
class HasAFixedMaximum(Plain):
    def clamped_to_max(self, handle, grown):
        return min(grown, self.rounded(handle.rule, 2.0**24))


@breaks("MACHINE-max-scale", "BMTrain 1.0.1: it grows while it is below the maximum, and may exceed it")
class ChecksTheMaximumBeforeTheGrowth(Plain):
    def clamped_to_max(self, handle, grown):
        return grown

    def may_grow(self, handle):
        return bool(handle.scale < handle.rule.max_scale)


@breaks("MACHINE-max-scale", "jmp 0.0.4, from which mpx takes its rule, has no maximum", "mpx")
class IgnoresTheMaximum(Plain):
    def clamped_to_max(self, handle, grown):
        return grown


@breaks("MACHINE-max-scale", "not observed: min and max are confused")
class GrowsAtLeastToItsMaximum(Plain):
    def clamped_to_max(self, handle, grown):
        return max(grown, self.rounded(handle.rule, handle.rule.max_scale))


# --- backoff


@breaks("MACHINE-backoff", "Oneflow-Inc/oneflow at 3411873: amp_kernels.cu set the flag if an element was finite")
class InvertsTheFlag(Plain):
    def was_finite(self, handle, finite):
        return not finite


@breaks("MACHINE-backoff", "DeepSpeed 0.19.8: the overflow test of its static LossScaler always returns False")
class IgnoresOverflows(Plain):
    def was_finite(self, handle, finite):
        return True


@breaks(
    "MACHINE-backoff",
    "MXNet 1.9.1: the second of two overflows is a consequence of the first, whose backoff has not taken effect yet",
    "mpx",
)
class BacksOffOncePerRunOfOverflows(Plain):
    def backoff_due(self, handle, bad, since):
        return not getattr(handle, "overflowed", False)

    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.overflowed = True

    def finite_step(self, handle):
        super().finite_step(handle)
        handle.overflowed = False


@breaks(
    "MACHINE-backoff", "MindSpore 2.10.0, facebookresearch/metaseq#115: the manager raises at the 1001st consecutive overflow"
)
class RaisesAfterThirtyTwoOverflows(Plain):
    def would_raise(self, handle, due, scale):
        handle.overflows = getattr(handle, "overflows", 0) + 1
        return bool(handle.overflows > 32)

    def finite_step(self, handle):
        super().finite_step(handle)
        handle.overflows = 0


@breaks("MACHINE-backoff", "Keras 3.15.1: its factors are 2 and 0.5, and cannot be set")
class HalvesWhateverItsFactor(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, 0.5)


@breaks("MACHINE-backoff", "tf_keras 2.21.0: never below 1, unlike Keras 3.15.1; keras-team/tf-keras#644", "keras")
class StaysAtOne(Plain):
    def clamped_to_min(self, handle, reduced):
        return max(reduced, self.rounded(handle.rule, 1.0))


@breaks("MACHINE-backoff", "MindSpore 2.10.0: one scale_factor for both directions, in a scaler that claims two factors")
class DividesByItsGrowthFactor(Plain):
    def reduced(self, handle):
        return self.divided(handle, handle.rule.growth_factor)


@breaks("MACHINE-backoff", "Apex before May 2025: the factor is ignored in backoffs too", "mindspore")
class HalvesInsteadOfQuartering(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, 0.5)


@breaks("MACHINE-overflow-resets", "Paddle 2.2: the page calls overflows accumulated; the mutant adds up finite steps", "torch")
class KeepsFiniteStepsOverOverflows(Plain):
    def count_after_overflow(self, handle):
        return int(handle.good)


@breaks(
    "MACHINE-overflow-resets", "fairscale 0.4.13: if it is called like torch's scaler, it counts an overflow as a step", "torch"
)
class CountsTheOverflowAsAStep(Plain):
    def count_after_overflow(self, handle):
        return 1


@breaks("MACHINE-overflow-resets", "OpenSeq2Seq at 8681d381: it grows at multiples of the iteration counter", "torch")
class GrowsAtMultiplesOfTheIteration(Plain):
    def finite_step(self, handle):
        handle.total = getattr(handle, "total", 0) + 1
        handle.good = self.window(handle) if handle.total % self.window(handle) == 0 else 0
        super().finite_step(handle)

    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.total = getattr(handle, "total", 0) + 1


@breaks("MACHINE-overflow-resets", "BMTrain 1.0.1: the count restarts only if the scale has changed")
class ResetsOnlyIfItBacksOff(Plain):
    def overflow_step(self, handle):
        scale, good = handle.scale, handle.good
        super().overflow_step(handle)
        if handle.scale == scale:
            handle.good = good


@breaks("MACHINE-min-scale", "jmp 0.0.4: after jit the minimum is 1, whatever was set", "jmp")
class HasAFixedMinimum(Plain):
    def clamped_to_min(self, handle, reduced):
        return max(reduced, self.rounded(handle.rule, 1.0))


@breaks("MACHINE-min-scale", "BMTrain 1.0.1: it backs off while it is above the minimum, and may fall below it")
class ChecksTheMinimumBeforeTheBackoff(Plain):
    def clamped_to_min(self, handle, reduced):
        return reduced

    def may_back_off(self, handle):
        return bool(handle.scale > handle.rule.min_scale)


@breaks(
    "MACHINE-min-scale", "NVIDIA/apex#318 and #635: the scale falls to 1e-316, which leads to a division by zero", "mindspore"
)
class IgnoresTheMinimum(Plain):
    def clamped_to_min(self, handle, reduced):
        return reduced


@breaks("MACHINE-min-scale", "not observed: min and max are confused")
class FallsAtLeastToItsMinimum(Plain):
    def clamped_to_min(self, handle, reduced):
        return min(reduced, self.rounded(handle.rule, handle.rule.min_scale))


@breaks("MACHINE-static", "DeepSpeed 0.19.8: the fixed scale and the dynamic one are two classes with a common update", "static")
class BacksOffThoughItIsStatic(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, 0.5)


@breaks("MACHINE-skip-infinite-growth", "planted: the guard is `scale < 2**127`, so that a growth by 1.5 is skipped too", "torch")
class StopsAtTheLargestPowerOfTwo(Plain):
    def skip_infinite(self, handle, grown):
        return handle.scale if handle.scale >= 2.0**127 else super().skip_infinite(handle, grown)


MUTANTS = (*MACHINES, *HYSTERESIS, *VARIANTS, *HANDLES)
