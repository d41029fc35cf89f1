"""Mutants of chapter 30: state that is shared, changed by reading or saved incompletely; and rare patterns of steps."""

from dataclasses import replace
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import Unsupported

from . import table
from .plain import Plain

HANDLES, breaks = table()

# --- rejected rules


@breaks("MACHINE-state", "not observed: an adapter that rejects every rule fails no case, since none runs", "torch")
class RejectsWhatItClaims(Plain):
    def create(self, rule, **options):
        raise Unsupported("it has constants of its own")


# --- bugs that only a pattern of several steps reveals


@breaks("MACHINE-every-sequence", "MXNet 1.9.1: an overflow right after a growth used another scale", "torch")
class IgnoresAnOverflowAfterAGrowth(Plain):
    def count_after_growth(self, handle):
        handle.grew = True
        return 0

    def overflow_step(self, handle):
        if handle.good or not getattr(handle, "grew", False):
            super().overflow_step(handle)
        handle.grew = False


@breaks("MACHINE-every-sequence", "NeMo 2.5.0: an event that has nothing to do with overflows changes their count", "paddle")
class CountsAnOverflowAtAGrowth(Plain):
    def finite_step(self, handle):
        super().finite_step(handle)
        handle.bad = max(handle.bad, int(handle.since == 0))


@breaks(
    "MACHINE-every-sequence",
    "mpx 0.1.8 clamps its result at every adjustment; here only the scale that is read is clamped",
    "apex",
)
class ClampsOnlyTheReadScale(Plain):
    def clamped_to_max(self, handle, grown):
        return grown

    def read_scale(self, handle):
        return float(min(handle.shown, self.rounded(handle.rule, handle.rule.max_scale)))


# --- shared state, and reads that change it


@breaks("MACHINE-pure", "PaddlePaddle/Paddle 3.3.1: GradScaler has one flag for all optimizers; here one state for all scalers")
class SharesItsState(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule)
        return object()

    def update(self, handle, finite):
        super().update(self.latest, finite)

    def read_scale(self, handle):
        return super().read_scale(self.latest)


@breaks("MACHINE-pure", "not observed: one scaler per module, which every new run continues")
class StartsFromThePreviousScaler(Plain):
    last: Any = None

    def create(self, rule, **options):
        handle = super().create(rule)
        if self.last is not None:
            handle.scale = handle.shown = self.last.scale
        self.last = handle
        return handle


@breaks("MACHINE-pure", "not observed: as Paddle 3.3.1's set_init_loss_scaling, which also sets the current scale")
class ReturnsTheInitialScaleOnASecondRead(Plain):
    def read_scale(self, handle):
        shown, handle.shown = handle.shown, handle.rule.init_scale
        return float(shown)


@breaks("MACHINE-pure", "not observed: reading the scale scales it")
class DoublesWhenItIsRead(Plain):
    def read_scale(self, handle):
        handle.scale = self.multiplied(handle, 2.0)
        return float(handle.shown)


@breaks("MACHINE-pure", "hivemind: update changes the scale at global steps only; here when it is read")
class UpdatesWhenItIsRead(Plain):
    def update(self, handle, finite):
        handle.pending = finite

    def read_scale(self, handle):
        pending, handle.pending = getattr(handle, "pending", None), None
        if pending is not None:
            super().update(handle, pending)
        return super().read_scale(handle)


# --- saving and loading


@breaks("STEP-resume", "ColossalAI 0.5.0: its checkpoint contains neither count; BMTrain 1.0.1")
class LosesTheFiniteSteps(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "bad", "since")


@breaks("STEP-resume", "ColossalAI 0.5.0: its checkpoint contains neither count")
class LosesTheOverflows(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "good", "since")


@breaks("STEP-resume", "NeMo 2.5.0: the overflow count is read under a misspelled name, and becomes 1")
class CountsAnOverflowWhenLoaded(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.bad = rule.hysteresis - 1
        return handle


@breaks(
    "STEP-resume", "huggingface/transformers#34053, facebookresearch/detectron2#3686: the scaler is not saved at all", "torch"
)
class LosesTheScale(Plain):
    def saved_fields(self, handle):
        return ("good", "bad", "since")


@breaks("STEP-resume", "google-deepmind/jmp#47: a float16 scale, here only in the checkpoint", "torch")
class SavesTheScaleInFloat16(Plain):
    def save(self, handle):
        with np.errstate(over="ignore"):
            return super().save(handle) | {"scale": np.float32(np.float16(handle.scale))}


@breaks("STEP-resume", "Chainer 7.8.1 and MXNet 1.9.1: nothing is saved, not even the caller's constants")
class LoadsDefaultFactors(Plain):
    def load(self, rule, saved):
        return super().load(replace(rule, growth_factor=2.0), saved)


@breaks("STEP-resume", "jmp 0.0.4: the minimum is not part of the pytree, and becomes 1", "jmp")
class LosesItsMinimum(Plain):
    def load(self, rule, saved):
        return super().load(replace(rule, min_scale=1.0), saved)


@breaks("STEP-resume", "MXNet 1.9.1: the scale that takes effect at the next check is not saved", "mxnet")
class LosesThePendingScale(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.scale = handle.shown
        return handle


@breaks("STEP-resume", "fairseq 0.12.2: its checkpoint contains only the scale", "fairseq_tolerance")
class LosesTheWindowSteps(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "good", "bad")


@breaks("STEP-resume", "Chainer 7.8.1: the checkpoint does not record whether an overflow has occurred", "chainer")
class WarmsUpAgainWhenLoaded(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "good", "since")


@breaks("STEP-resume", "DeepSpeed 0.19.8: ZeRO saves the scaler object itself")
class SavesTheLiveState(Plain):
    def save(self, handle):
        return vars(handle)


@breaks("STEP-resume", "not observed: load uses the saved object itself")
class AliasesTheSavedState(Plain):
    def save(self, handle):
        return replace(handle)

    def load(self, rule, saved):
        return saved


@breaks("STEP-resume", "ultralytics/ultralytics#24731: saving a checkpoint changes the live object")
class ResetsItsCountWhenSaved(Plain):
    def save(self, handle):
        saved = super().save(handle)
        handle.good = 0
        return saved
