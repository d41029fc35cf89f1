"""Wrong machines: how many overflows are forgiven, and what forgets them."""

import numpy as np

from . import table
from .plain import Plain

HYSTERESIS, wrong = table()


@wrong("MACHINE-hysteresis", "torch 2.13.0 and most others have none, and so has what is ported from them")
class HasNoHysteresis(Plain):
    def backoff_due(self, handle, bad, since):
        return True


@wrong("MACHINE-hysteresis", "not seen; the slip by which DeepSpeed 0.19.8 has a longer first window, on the other count")
class BacksOffOneOverflowLate(Plain):
    def backoff_due(self, handle, bad, since):
        return bool(bad > handle.rule.hysteresis)


@wrong("MACHINE-hysteresis", "Paddle 3.3.1: a docstring says 2, the constructor says 1, and neither is what was given")
class HasAHysteresisOfTwo(Plain):
    def backoff_due(self, handle, bad, since):
        return bool(bad >= min(2, handle.rule.hysteresis))


@wrong("MACHINE-reset-bad-steps", "Paddle 3.3.1: documented as accumulated, and coded as overflows in a row", "paddle_document")
class ForgetsOverflowsAtAFiniteStep(Plain):
    def forgives(self, handle, event):
        return True


@wrong("MACHINE-reset-bad-steps", "Megatron-core 0.16.1: documented as overflows in a row, and coded as accumulated", "paddle")
class KeepsOverflowsOverAFiniteStep(Plain):
    def forgives(self, handle, event):
        return event == "growth"


@wrong("MACHINE-reset-bad-steps", "Apex's hysteresis kernel at 2026-07-08: a growth is not what refills it", "megatron")
class KeepsOverflowsOverAGrowth(Plain):
    def forgives(self, handle, event):
        return False


@wrong("MACHINE-reset-bad-steps", "not seen; TensorFlow 1.15.5 forgets them though nothing grew", "tensorflow_contrib")
class KeepsOverflowsOverAGrowthThatFailed(Plain):
    def forgives(self, handle, event):
        return super().forgives(handle, event) and not np.isinf(self.multiplied(handle, self.growth_factor(handle)))


@wrong("MACHINE-reset-bad-steps", "not seen; ColossalAI 0.5.0 forgets them though the cap let nothing grow", "colossalai")
class KeepsOverflowsOverAGrowthAtTheCap(Plain):
    def forgives(self, handle, event):
        return super().forgives(handle, event) and bool(handle.scale < handle.rule.max_scale)


@wrong("MACHINE-reset-bad-steps", "Paddle 3.3.1: after a backoff it waits anew, where Megatron-core 0.16.1 does not", "megatron")
class ForgetsOverflowsAtABackoff(Plain):
    def bad_after_backoff(self, handle):
        return 0


@wrong(
    "MACHINE-reset-bad-steps",
    "Megatron-core 0.16.1: after a backoff the next overflow backs off, where Paddle 3.3.1 waits",
    "paddle",
)
class KeepsOverflowsOverABackoff(Plain):
    def bad_after_backoff(self, handle):
        return int(handle.rule.hysteresis)
