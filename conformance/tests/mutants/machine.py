"""Wrong machines: growth, backoff and their bounds."""

import numpy as np

from . import table
from .machine_handles import HANDLES
from .machine_hysteresis import HYSTERESIS
from .machine_variants import VARIANTS
from .plain import EVERY_SETTING, Plain

MACHINES, wrong = table()

# --- what it starts with


@wrong("MACHINE-state", "huggingface/transformers#34053: training went on from 65536 where 256 was due")
class StartsAtNoLessThanItsDefault(Plain):
    def create(self, rule, **options):
        handle = super().create(rule)
        handle.scale = handle.shown = max(handle.scale, self.held(rule, EVERY_SETTING.init_scale))
        return handle


@wrong("MACHINE-state", "google-deepmind/jmp#47: the published example holds a float16 scale", capabilities=())
class HoldsTheScaleInFloat16(Plain):
    def held(self, rule, scale):
        with np.errstate(over="ignore"):
            return np.float32(np.float16(scale))


@wrong("MACHINE-state", "not seen; the float16 scale of google-deepmind/jmp#47, mended by half")
class HoldsTheScaleInBfloat16(Plain):
    def held(self, rule, scale):
        with np.errstate(over="ignore"):
            bits = np.float32(scale).view(np.uint32)
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)


@wrong("MACHINE-state", "MindSpore 2.10.0: the scaler has float32, and the manager beside it the host's float64", "deepspeed")
class HoldsTheScaleInFloat32(Plain):
    def held(self, rule, scale):
        return np.float32(scale)


@wrong("MACHINE-state", "Paddle 3.3.1: an initial scale of the str '1024' is accepted, and goes round as one")
class TellsTheScaleInWords(Plain):
    def read_scale(self, handle):
        return str(handle.shown)


@wrong("MACHINE-state", "Paddle 3.3.1: the scale has shape (1,), which NumPy 2.4 does not make a float of")
class TellsTheScaleInAList(Plain):
    def read_scale(self, handle):
        return [float(handle.shown)]


# --- growth


@wrong("MACHINE-growth-window", "flax 0.12.8: DynamicScale grows in the step after its interval")
class GrowsOneStepLate(Plain):
    def window(self, handle):
        return super().window(handle) + 1


@wrong("MACHINE-growth-window", "fairscale 0.4.13: called as torch's is, its next growth is one step early")
class GrowsOneStepEarly(Plain):
    def window(self, handle):
        return super().window(handle) - 1


@wrong("MACHINE-growth-window", "DeepSpeed 0.19.8: its first window is one step longer than the others")
class WaitsOneStepMoreAtFirst(Plain):
    def first_count(self, rule):
        return super().first_count(rule) - 1


@wrong("MACHINE-growth-window", "Keras 3.15.1: an equality with the count before the step, which an interval of 0 never meets")
class NeverGrowsInTwoStepsRunning(Plain):
    def window(self, handle):
        return max(super().window(handle), 2)


@wrong("MACHINE-growth-window", "not seen; a narrow type chosen to spare memory on a device")
class CountsInEightBits(Plain):
    def growth_due(self, handle):
        handle.good = (handle.good + 128) % 256 - 128
        return super().growth_due(handle)


@wrong("MACHINE-growth-window", "sophgo/torch-tpu at 1aa8cdb: Amp_update_scale tested the flag's address")
class TakesEveryStepForAnOverflow(Plain):
    def was_finite(self, handle, finite):
        return False


@wrong("MACHINE-growth-factor", "Apex before May 2025: amp's LossScaler is given a factor, and doubles")
class DoublesWhateverItsFactor(Plain):
    def growth_factor(self, handle):
        return 2.0


@wrong("MACHINE-growth-factor", "Apex before May 2025: 2**24 at most, unless it is told otherwise", "deepspeed")
class GrowsToTwoToThe24(Plain):
    def capped(self, handle, grown):
        return min(grown, self.held(handle.rule, 2.0**24))


@wrong("MACHINE-growth-factor", "not seen; additive increase, as in networks")
class GrowsByAddition(Plain):
    def grown(self, handle):
        return self.capped(handle, handle.scale + self.held(handle.rule, handle.rule.init_scale))


@wrong("MACHINE-growth-resets", "fairseq 0.12.2: after a caught FloatingPointError it grows in the very next step")
class GrowsInEveryStepOnceItHasGrown(Plain):
    def count_after_growth(self, handle):
        return int(handle.good)


@wrong("MACHINE-growth-resets", "fairscale 0.4.13: a step counted twice, and a window one step short")
class CountsTheGrowthInTheNextWindow(Plain):
    def count_after_growth(self, handle):
        return 1


@wrong(
    "MACHINE-skip-infinite-growth", "google/flax#2547 and pytorch/pytorch#98828: the scale grew to infinity, and stayed", "torch"
)
class GrowsToInfinity(Plain):
    def guarded(self, handle, grown):
        return grown


@wrong("MACHINE-skip-infinite-growth", "flax 0.12.8: a growth beyond float32 lands on its largest number", "torch")
class GrowsToTheLargestFloat32(Plain):
    def guarded(self, handle, grown):
        return min(grown, np.finfo(np.float32).max)


@wrong(
    "MACHINE-skip-infinite-growth", "Paddle 3.3.1: an equality test, which a count that has passed it never meets again", "torch"
)
class StaysAtTheTopForEver(Plain):
    def may_grow(self, handle):
        handle.stuck = getattr(handle, "stuck", False) or np.isinf(self.multiplied(handle, self.growth_factor(handle)))
        return not handle.stuck


@wrong("MACHINE-skip-infinite-growth", "torch 2.13.0: the guard that Keras 3.15.1 lacks, in what says that it is Keras'", "keras")
class HasAGuardOfItsOwn(Plain):
    def guarded(self, handle, grown):
        return handle.scale if np.isinf(grown) else grown


@wrong("MACHINE-max-scale", "ColossalAI 0.5.0: plugins whose cap is 2**32, or 2**24, whatever the scaler has", "apex")
class HasACapOfItsOwn(Plain):
    def capped(self, handle, grown):
        return min(grown, self.held(handle.rule, 2.0**24))


@wrong("MACHINE-max-scale", "BMTrain 1.0.1: it grows from below the maximum, and may land beyond it")
class AsksTheCapBeforeTheGrowth(Plain):
    def capped(self, handle, grown):
        return grown

    def may_grow(self, handle):
        return bool(handle.scale < handle.rule.max_scale)


@wrong("MACHINE-max-scale", "jmp 0.0.4, which mpx takes its rule from, has no cap", "mpx")
class ForgetsTheCap(Plain):
    def capped(self, handle, grown):
        return grown


@wrong("MACHINE-max-scale", "not seen; one of min and max taken for the other")
class GrowsAtLeastToItsCap(Plain):
    def capped(self, handle, grown):
        return max(grown, self.held(handle.rule, handle.rule.max_scale))


# --- backoff


@wrong("MACHINE-backoff", "Oneflow-Inc/oneflow at 3411873: amp_kernels.cu set the flag where an element is finite")
class TakesFiniteForOverflow(Plain):
    def was_finite(self, handle, finite):
        return not finite


@wrong("MACHINE-backoff", "DeepSpeed 0.19.8: the overflow test of its static LossScaler says False of everything")
class NeverSeesAnOverflow(Plain):
    def was_finite(self, handle, finite):
        return True


@wrong("MACHINE-backoff", "MXNet 1.9.1: the second of two overflows is the first one's, whose backoff is not in force yet", "mpx")
class BacksOffOnceInARow(Plain):
    def backoff_due(self, handle, bad, since):
        return not getattr(handle, "overflowed", False)

    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.overflowed = True

    def finite_step(self, handle):
        super().finite_step(handle)
        handle.overflowed = False


@wrong("MACHINE-backoff", "MindSpore 2.10.0: the manager raises at the 1001st overflow in a row; facebookresearch/metaseq#115")
class GivesUpAfterThirtyTwoOverflows(Plain):
    def gives_up(self, handle, due, scale):
        handle.overflows = getattr(handle, "overflows", 0) + 1
        return bool(handle.overflows > 32)

    def finite_step(self, handle):
        super().finite_step(handle)
        handle.overflows = 0


@wrong("MACHINE-backoff", "Keras 3.15.1: its factors are 2 and 0.5, and nothing sets them")
class HalvesWhateverItsFactor(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, 0.5)


@wrong("MACHINE-backoff", "tf_keras 2.21.0: never below 1, where Keras 3.15.1 goes on; keras-team/tf-keras#644", "keras")
class StaysAtOne(Plain):
    def floored(self, handle, reduced):
        return max(reduced, self.held(handle.rule, 1.0))


@wrong("MACHINE-backoff", "MindSpore 2.10.0: one scale_factor for both ways, in what has two factors")
class DividesByItsGrowthFactor(Plain):
    def reduced(self, handle):
        return self.divided(handle, handle.rule.growth_factor)


@wrong("MACHINE-backoff", "Apex before May 2025: the factor is ignored, in backoffs too", "mindspore")
class HalvesBesideAFactorOfFour(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, 0.5)


@wrong("MACHINE-overflow-resets", "Paddle 2.2: its page calls overflows accumulated; here the finite steps are", "torch")
class CountsFiniteStepsOverOverflows(Plain):
    def count_after_overflow(self, handle):
        return int(handle.good)


@wrong("MACHINE-overflow-resets", "fairscale 0.4.13: called as torch's is, it counts an overflow as a step too", "torch")
class CountsTheOverflowAsAStep(Plain):
    def count_after_overflow(self, handle):
        return 1


@wrong("MACHINE-overflow-resets", "OpenSeq2Seq at 8681d381: a modulus of the iteration counter", "torch")
class GrowsAtEveryThirdStepOfAll(Plain):
    def finite_step(self, handle):
        handle.total = getattr(handle, "total", 0) + 1
        handle.good = self.window(handle) if handle.total % self.window(handle) == 0 else 0
        super().finite_step(handle)

    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.total = getattr(handle, "total", 0) + 1


@wrong("MACHINE-overflow-resets", "BMTrain 1.0.1: the count starts again only where the scale has moved")
class ResetsOnlyWhereItBacksOff(Plain):
    def overflow_step(self, handle):
        scale, good = handle.scale, handle.good
        super().overflow_step(handle)
        if handle.scale == scale:
            handle.good = good


@wrong("MACHINE-min-scale", "jmp 0.0.4: whatever minimum was set, it is 1 once the object has been through jit", "jmp")
class HasAFloorOfItsOwn(Plain):
    def floored(self, handle, reduced):
        return max(reduced, self.held(handle.rule, 1.0))


@wrong("MACHINE-min-scale", "BMTrain 1.0.1: it shrinks from above the minimum, and may land below it")
class AsksTheFloorBeforeTheBackoff(Plain):
    def floored(self, handle, reduced):
        return reduced

    def may_back_off(self, handle):
        return bool(handle.scale > handle.rule.min_scale)


@wrong("MACHINE-min-scale", "NVIDIA/apex#318 and #635: the scale falls to 1e-316, and something is divided by zero", "mindspore")
class ForgetsTheFloor(Plain):
    def floored(self, handle, reduced):
        return reduced


@wrong("MACHINE-min-scale", "not seen; one of min and max taken for the other")
class FallsAtLeastToItsFloor(Plain):
    def floored(self, handle, reduced):
        return min(reduced, self.held(handle.rule, handle.rule.min_scale))


@wrong("MACHINE-static", "DeepSpeed 0.19.8: a fixed scale and a moving one are two classes that share an update", "static")
class BacksOffThoughItIsStatic(Plain):
    def reduced(self, handle):
        return self.multiplied(handle, 0.5)


MUTANTS = (*MACHINES, *HYSTERESIS, *VARIANTS, *HANDLES)
