"""Wrong scalers around a right machine: state that is shared, read wrongly, or saved by half; and some odd patterns."""

from dataclasses import replace
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import Unsupported

from . import table
from .plain import Plain

HANDLES, wrong = table()

# --- who cannot be made at all


@wrong("MACHINE-state", "not seen; an adapter that refuses every rule fails nothing, as it is asked nothing", "torch")
class RefusesWhatItClaims(Plain):
    def create(self, rule, **options):
        raise Unsupported("it has constants of its own")


# --- what only a pattern of several steps shows


@wrong("MACHINE-every-sequence", "MXNet 1.9.1: what overflows right after a growth used another scale", "torch")
class ForgivesAnOverflowAfterAGrowth(Plain):
    def count_after_growth(self, handle):
        handle.grew = True
        return 0

    def overflow_step(self, handle):
        if handle.good or not getattr(handle, "grew", False):
            super().overflow_step(handle)
        handle.grew = False


@wrong("MACHINE-every-sequence", "NeMo 2.5.0: patience that is spent by an event, whatever was asked for", "paddle")
class SpendsItsPatienceAsItGrows(Plain):
    def finite_step(self, handle):
        super().finite_step(handle)
        handle.bad = max(handle.bad, int(handle.since == 0))


@wrong("MACHINE-every-sequence", "mpx 0.1.8 clamps its result at every adjustment; here only what is read is clamped", "apex")
class ClampsOnlyWhatIsShown(Plain):
    def capped(self, handle, grown):
        return grown

    def read_scale(self, handle):
        return float(min(handle.shown, self.held(handle.rule, handle.rule.max_scale)))


# --- what two scalers share, and what a reader does


@wrong("MACHINE-pure", "PaddlePaddle/Paddle's GradScaler of 3.3.1 has one flag for all its optimizers; here one state for all")
class SharesItsStateAmongAll(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule)
        return object()

    def update(self, handle, finite):
        super().update(self.latest, finite)

    def read_scale(self, handle):
        return super().read_scale(self.latest)


@wrong("MACHINE-pure", "not seen; a module's one scaler, which every new run is given")
class GoesOnFromTheLastOne(Plain):
    last: Any = None

    def create(self, rule, **options):
        handle = super().create(rule)
        if self.last is not None:
            handle.scale = handle.shown = self.last.scale
        self.last = handle
        return handle


@wrong("MACHINE-pure", "not seen; as Paddle 3.3.1's set_init_loss_scaling, which sounds like a constant, sets the scale")
class ShowsTheInitialScaleToASecondReader(Plain):
    def read_scale(self, handle):
        shown, handle.shown = handle.shown, handle.rule.init_scale
        return float(shown)


@wrong("MACHINE-pure", "not seen; a scale that is scaled by its own reader")
class DoublesAsItIsRead(Plain):
    def read_scale(self, handle):
        handle.scale = self.multiplied(handle, 2.0)
        return float(handle.shown)


@wrong("MACHINE-pure", "hivemind: update moves the scale at global steps alone; here when somebody looks")
class MovesWhenItIsRead(Plain):
    def update(self, handle, finite):
        handle.pending = finite

    def read_scale(self, handle):
        pending, handle.pending = getattr(handle, "pending", None), None
        if pending is not None:
            super().update(handle, pending)
        return super().read_scale(handle)


# --- what is saved


@wrong("STEP-resume", "ColossalAI 0.5.0: its checkpoint holds neither count; BMTrain 1.0.1")
class LosesTheFiniteSteps(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "bad", "since")


@wrong("STEP-resume", "ColossalAI 0.5.0: its checkpoint holds neither count")
class LosesTheOverflows(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "good", "since")


@wrong("STEP-resume", "NeMo 2.5.0: the count of overflows is read under a misspelt name, and comes back as 1")
class SpendsItsPatienceAsItLoads(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.bad = rule.hysteresis - 1
        return handle


@wrong("STEP-resume", "huggingface/transformers#34053, facebookresearch/detectron2#3686: the scaler is not saved at all", "torch")
class LosesTheScale(Plain):
    def saved_fields(self, handle):
        return ("good", "bad", "since")


@wrong("STEP-resume", "google-deepmind/jmp#47: a float16 scale, here in the checkpoint alone", "torch")
class SavesTheScaleInFloat16(Plain):
    def save(self, handle):
        with np.errstate(over="ignore"):
            return super().save(handle) | {"scale": np.float32(np.float16(handle.scale))}


@wrong("STEP-resume", "Chainer 7.8.1 and MXNet 1.9.1: nothing is saved, constants of the caller's included")
class LoadsDefaultFactors(Plain):
    def load(self, rule, saved):
        return super().load(replace(rule, growth_factor=2.0), saved)


@wrong("STEP-resume", "jmp 0.0.4: the minimum is not among what is flattened, and is 1 again", "jmp")
class LosesItsFloor(Plain):
    def load(self, rule, saved):
        return super().load(replace(rule, min_scale=1.0), saved)


@wrong("STEP-resume", "MXNet 1.9.1: the scale that comes into force at the next check is saved by nobody", "mxnet")
class LosesTheScaleThatIsDue(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.scale = handle.shown
        return handle


@wrong("STEP-resume", "fairseq 0.12.2: its checkpoint keeps the scale alone", "fairseq_tolerance")
class LosesTheStepsOfTheShare(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "good", "bad")


@wrong("STEP-resume", "Chainer 7.8.1: whether there was an overflow ever is not saved", "chainer")
class BeginsAgainAsItLoads(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "good", "since")


@wrong("STEP-resume", "DeepSpeed 0.19.8: ZeRO saves the scaler object itself")
class SavesWhatIsAlive(Plain):
    def save(self, handle):
        return vars(handle)


@wrong("STEP-resume", "not seen; a load that takes the saved object for its own")
class GoesOnWithWhatWasSaved(Plain):
    def save(self, handle):
        return replace(handle)

    def load(self, rule, saved):
        return saved


@wrong("STEP-resume", "ultralytics/ultralytics#24731: what a checkpoint does to the live object, it does to the run")
class ResetsItsCountAsItIsSaved(Plain):
    def save(self, handle):
        saved = super().save(handle)
        handle.good = 0
        return saved
