"""Mutants of chapter 30: hysteresis, and the events that reset the overflow count."""

import numpy as np

from . import table
from .plain import Plain

HYSTERESIS, breaks = table()


@breaks("MACHINE-hysteresis", "torch 2.13.0 and most other scalers have no hysteresis, and neither have their ports")
class HasNoHysteresis(Plain):
    def backoff_due(self, handle, bad, since):
        return True


@breaks("MACHINE-hysteresis", "not observed: the off-by-one error of DeepSpeed 0.19.8's first window, in the overflow count")
class BacksOffOneOverflowLate(Plain):
    def backoff_due(self, handle, bad, since):
        return bool(bad > handle.rule.hysteresis)


@breaks("MACHINE-hysteresis", "Paddle 3.3.1: a docstring says 2, the constructor says 1, and the argument is ignored")
class HasAHysteresisOfTwo(Plain):
    def backoff_due(self, handle, bad, since):
        return bool(bad >= min(2, handle.rule.hysteresis))


@breaks("MACHINE-hysteresis", "planted: a small hysteresis counts from -1, like the first window of DeepSpeed 0.19.8")
class HasALongerSmallHysteresis(Plain):
    def backoff_due(self, handle, bad, since):
        return bool(bad >= handle.rule.hysteresis + (2 < handle.rule.hysteresis < 100))


@breaks("MACHINE-hysteresis", "planted: the overflow count is stored in 8 bits")
class CountsOverflowsInEightBits(Plain):
    def backoff_due(self, handle, bad, since):
        return bool(bad % 256 >= handle.rule.hysteresis)


@breaks(
    "MACHINE-reset-bad-steps",
    "Paddle 3.3.1: accumulated overflows are documented, and consecutive overflows are counted",
    "paddle_document",
)
class ResetsOverflowsAtAFiniteStep(Plain):
    def resets_overflows(self, handle, event):
        return True


@breaks(
    "MACHINE-reset-bad-steps",
    "Megatron-core 0.16.1: consecutive overflows are documented, and accumulated overflows are counted",
    "paddle",
)
class KeepsOverflowsOverAFiniteStep(Plain):
    def resets_overflows(self, handle, event):
        return event == "growth"


@breaks("MACHINE-reset-bad-steps", "Apex's hysteresis kernel at 2026-07-08: a growth does not reset the count", "megatron")
class KeepsOverflowsOverAGrowth(Plain):
    def resets_overflows(self, handle, event):
        return False


@breaks(
    "MACHINE-reset-bad-steps",
    "not observed: TensorFlow 1.15.5 resets the count even if the growth was skipped",
    "tensorflow_contrib",
)
class KeepsOverflowsOverASkippedGrowth(Plain):
    def resets_overflows(self, handle, event):
        return super().resets_overflows(handle, event) and not np.isinf(self.multiplied(handle, self.growth_factor(handle)))


@breaks(
    "MACHINE-reset-bad-steps",
    "not observed: ColossalAI 0.5.0 resets the count even if the maximum prevented the growth",
    "colossalai",
)
class KeepsOverflowsOverAGrowthAtTheMaximum(Plain):
    def resets_overflows(self, handle, event):
        return super().resets_overflows(handle, event) and bool(handle.scale < handle.rule.max_scale)


@breaks("MACHINE-reset-bad-steps", "Paddle 3.3.1: a backoff resets the count; in Megatron-core 0.16.1 it does not", "megatron")
class ResetsOverflowsAtABackoff(Plain):
    def bad_after_backoff(self, handle):
        return 0


@breaks(
    "MACHINE-reset-bad-steps",
    "Megatron-core 0.16.1: after a backoff the next overflow backs off; in Paddle 3.3.1 it does not",
    "paddle",
)
class KeepsOverflowsOverABackoff(Plain):
    def bad_after_backoff(self, handle):
        return int(handle.rule.hysteresis)


@breaks("STEP-resume", "planted: a scaler that is loaded at its minimum counts as exhausted", "deepspeed")
class LoadsTheMinimumAsExhausted(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.bad = max(handle.bad, rule.hysteresis - 1) if handle.scale <= rule.min_scale else handle.bad
        return handle


@breaks("MACHINE-every-sequence", "planted: a table of hystereses ends with four")
class HasAHysteresisOfAtMostFour(Plain):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, since) or (bad == 4 and handle.rule.hysteresis == 5)


@breaks("MACHINE-every-sequence", "planted: a hysteresis of five is rounded to an even number")
class RoundsAHysteresisOfFive(Plain):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, since) and (bad, handle.rule.hysteresis) != (5, 5)
