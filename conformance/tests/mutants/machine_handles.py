"""Mutants of chapter 30: state that is shared, changed by reading or saved incompletely; and rare patterns of steps."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import Unsupported
from ampscale_conformance.model.bits import map_tree

from ampscale.presets import PRESETS

from . import table
from .plain import Plain, PublishedScalerError

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
    "mpx 0.1.8 clamps its result at every adjustment; the mutant clamps only the scale that is read",
    "apex",
)
class ClampsOnlyTheReadScale(Plain):
    def clamped_to_max(self, handle, grown):
        return grown

    def read_scale(self, handle):
        return float(min(handle.shown, self.rounded(handle.rule, handle.rule.max_scale)))


@breaks("MACHINE-every-sequence", "planted: a table of the last six flags with one wrong entry")
class MisreadsOnePattern(Plain):
    def was_finite(self, handle, finite):
        handle.flags = (getattr(handle, "flags", "") + "-+"[finite])[-6:]
        return finite != (handle.flags == "-++-++")


@breaks("MACHINE-every-sequence", "planted: bounds are stored as exponents")
class RoundsItsBoundsToPowersOfTwo(Plain):
    def constants(self, rule):
        return replace(rule, max_scale=max(rule.init_scale, 2.0 ** np.floor(np.log2(rule.max_scale))))


@breaks("MACHINE-growth-window", "planted: a constant that was meant as a default limits the window")
class GrowsAfterAtMostAThousandSteps(Plain):
    def window(self, handle):
        return min(super().window(handle), 1000)


@breaks("MACHINE-growth-window", "planted: every setting is declined, so that no other case runs", "paddle")
class DeclinesEverySetting(Plain):
    def create(self, rule, **options):
        if rule != PRESETS["paddle"].rule():
            raise Unsupported("its constants cannot be set")
        return super().create(rule)

    def reduced(self, handle):
        return self.multiplied(handle, 0.25)


@breaks("MACHINE-every-sequence", "planted: an integer stores the scale, and factors are powers of two", "torch", 0, ["resume"])
class TruncatesTheFirstScale(Plain):
    def create(self, rule, **options):
        return super().create(replace(rule, init_scale=max(1.0, float(int(rule.init_scale)))))


@breaks("MACHINE-every-sequence", "planted: the processor is in a mode in which subnormal results are zero", "torch")
class FlushesASubnormalScale(Plain):
    def reduced(self, handle):
        reduced = super().reduced(handle)
        return reduced if reduced >= 2.0**-126 else self.rounded(handle.rule, 0.0)


# --- tensors between updates


class _Cached(Plain):
    """Implementation that stores a copy of the scale, which only steps with the flag `renewed_by` update."""

    renewed_by: bool

    def create(self, rule, **options):
        handle = super().create(rule, **options)
        handle.cached = handle.shown
        return handle

    def update(self, handle, finite):
        super().update(handle, finite)
        if finite is self.renewed_by:
            handle.cached = handle.shown


class _ScalesByTheCopy(_Cached):
    def scale(self, handle, tree):
        return map_tree(lambda leaf: self.scaled_leaf(leaf, handle.cached), tree)


class _UnscalesByTheCopy(_Cached):
    def unscale(self, handle, tree):
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, handle.cached), tree)


@breaks("MACHINE-next-step", "pytorch/pytorch#55562: a captured graph keeps its scale until an overflow captures it again")
class ScalesByTheScaleBeforeAGrowth(_ScalesByTheCopy):
    renewed_by = False


@breaks("MACHINE-next-step", "not observed: a skipped step returns before it passes on the new scale")
class ScalesByTheScaleBeforeABackoff(_ScalesByTheCopy):
    renewed_by = True


@breaks(
    "MACHINE-next-step",
    "pytorch/pytorch#55562: a captured graph keeps its reciprocal until an overflow captures it again",
)
class UnscalesByTheScaleBeforeAGrowth(_UnscalesByTheCopy):
    renewed_by = False


@breaks("MACHINE-next-step", "not observed: a skipped step returns before it computes the new reciprocal")
class UnscalesByTheScaleBeforeABackoff(_UnscalesByTheCopy):
    renewed_by = True


@breaks("MACHINE-next-step", "deepspeedai/DeepSpeed#8588: the scale is updated before the gradients are unscaled")
class UnscalesByTheNextScale(Plain):
    def unscale(self, handle, tree):
        next_handle = copy.copy(handle)
        self.update(next_handle, True)
        return super().unscale(next_handle, tree)


@breaks("MACHINE-next-step", "planted: scaling a loss counts as a finite step")
class CountsAScaledLossAsAStep(Plain):
    def scale(self, handle, tree):
        handle.good += 1
        return super().scale(handle, tree)


@breaks("MACHINE-next-step", "planted: the flag of a check is used in the next update")
class RemembersTheCheck(Plain):
    def all_finite(self, tree):
        self.finite = super().all_finite(tree)
        return self.finite

    def was_finite(self, handle, finite):
        checked, self.finite = getattr(self, "finite", True), True
        return finite and checked


# --- shared state, and reads that change it


@breaks("MACHINE-pure", "PaddlePaddle/Paddle 3.3.1: all optimizers share one flag; in the mutant, all scalers share one state")
class SharesItsState(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule)
        return object()

    def update(self, handle, finite):
        super().update(self.latest, finite)

    def read_scale(self, handle):
        return super().read_scale(self.latest)


@breaks("MACHINE-pure", "planted: the scale of the last update is cached in the class, for logging")
class ShowsTheScaleOfTheLastUpdate(Plain):
    def update(self, handle, finite):
        super().update(handle, finite)
        self.latest = handle.shown

    def read_scale(self, handle):
        return float(getattr(self, "latest", handle.shown))


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


@breaks("MACHINE-pure", "not observed: reading the scale doubles it")
class DoublesWhenItIsRead(Plain):
    def read_scale(self, handle):
        handle.scale = self.multiplied(handle, 2.0)
        return float(handle.shown)


@breaks("MACHINE-pure", "hivemind: update changes the scale at global steps only; in the mutant, only a read changes it")
class UpdatesWhenItIsRead(Plain):
    def update(self, handle, finite):
        handle.pending = finite

    def read_scale(self, handle):
        pending, handle.pending = getattr(handle, "pending", None), None
        if pending is not None:
            super().update(handle, pending)
        return super().read_scale(handle)


@breaks("MACHINE-pure", "planted: a window in which the scale is read after its first step, and not before it, restarts", "torch")
class ReadingRestartsTheWindow(Plain):
    def overflow_step(self, handle):
        super().overflow_step(handle)
        handle.unread = True

    def read_scale(self, handle):
        handle.good = 0 if getattr(handle, "unread", False) and handle.good == 1 else handle.good
        handle.unread = False
        return super().read_scale(handle)


# --- saving and loading


@breaks("STEP-resume", "planted: loading removes the count from the saved state")
class LoadsACountOnce(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        saved["good"] = self.first_count(rule)
        return handle


@breaks("STEP-resume", "planted: a loaded scaler catches the error of its published scaler", "deepspeed")
class CatchesErrorsOnceLoaded(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.loaded = True
        return handle

    def update(self, handle, finite):
        try:
            super().update(handle, finite)
        except PublishedScalerError:
            if not hasattr(handle, "loaded"):
                raise


@breaks("STEP-resume", "planted: what was saved is saved again until the scale changes", "torch")
class SavesAnOldState(Plain):
    def save(self, handle):
        if not hasattr(handle, "saved") or handle.saved["scale"] != handle.scale:
            handle.saved = super().save(handle)
        return handle.saved


@breaks("STEP-resume", "planted: the count of finite steps is saved in one byte", capabilities=("resume",))
class SavesLongCountsInOneByte(Plain):
    def save(self, handle):
        saved = super().save(handle)
        return {**saved, "good": saved["good"] % 256}


@breaks("STEP-resume", "planted: after a load, finite steps are counted from zero, and only this count is saved")
class SavesTheCountSinceTheLoad(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.loaded = handle.good
        return handle

    def update(self, handle, finite):
        good = handle.good
        super().update(handle, finite)
        if handle.good <= good:
            handle.loaded = 0

    def save(self, handle):
        saved = super().save(handle)
        return {**saved, "good": saved["good"] - getattr(handle, "loaded", 0) if saved["good"] > 0 else saved["good"]}


@breaks("STEP-resume", "ColossalAI 0.5.0, BMTrain 1.0.1: the checkpoint does not contain the count of finite steps")
class LosesTheFiniteSteps(Plain):
    def saved_fields(self, handle):
        return ("scale", "shown", "bad", "since")


@breaks("STEP-resume", "ColossalAI 0.5.0: its checkpoint does not contain the count of overflows")
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


@breaks("STEP-resume", "google-deepmind/jmp#47: the scale is a float16, in the mutant only in the checkpoint", "torch")
class SavesTheScaleInFloat16(Plain):
    def save(self, handle):
        with np.errstate(over="ignore"):
            return super().save(handle) | {"scale": np.float32(np.float16(handle.scale))}


@breaks("STEP-resume", "planted: the exponent of the scale is saved")
class SavesThePowerOfTwo(Plain):
    def save(self, handle):
        return super().save(handle) | {"scale": self.rounded(handle.rule, 2.0 ** np.floor(np.log2(handle.scale)))}


@breaks("STEP-resume", "planted: a scale below 1 is taken for a damaged file")
class LoadsAtLeastOne(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.scale = max(handle.scale, self.rounded(rule, 1.0))
        return handle


@breaks("STEP-resume", "planted: an infinite scale is taken for a damaged file", "keras")
class LoadsNoInfinity(Plain):
    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.scale = handle.shown = handle.scale if np.isfinite(handle.scale) else self.rounded(rule, rule.init_scale)
        return handle


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


@breaks(
    "STEP-resume",
    "Paddle 3.3.1: counts are compared for equality, so a count that is loaded beyond a shorter window never ends it",
)
class ComparesCountsForEquality(Plain):
    def growth_due(self, handle):
        return handle.good == self.window(handle)


@breaks("MACHINE-pure", "planted: an overflow writes the new scale into the rule that was passed")
class WritesIntoTheRule(Plain):
    def overflow_step(self, handle):
        super().overflow_step(handle)
        object.__setattr__(handle.rule, "init_scale", float(handle.scale))


@breaks("STEP-resume", "planted: a checkpoint in the second half of a long window restarts the window of the live scaler")
class SavingRestartsALongWindow(Plain):
    def save(self, handle):
        saved = super().save(handle)
        handle.good = 0 if 1000 < self.window(handle) < 2 * handle.good else handle.good
        return saved


@breaks("STEP-resume", "planted: the counts are moved into what is saved, and copied back by the next step", "torch")
class SavesTheCountsOnce(Plain):
    def save(self, handle):
        saved = super().save(handle) | ({"good": 0} if getattr(handle, "moved", False) else {})
        handle.moved = True
        return saved

    def update(self, handle, finite):
        handle.moved = False
        return super().update(handle, finite)


@breaks("MACHINE-pure", "planted: the counts of all scalers are in a table of 32 rows")
class ReusesRows(Plain):
    def create(self, rule, **options):
        handle = super().create(rule, **options)
        self.created = getattr(self, "created", 0) + 1
        handle.row = self.created % 32
        self.rows = getattr(self, "rows", {}) | {handle.row: handle.good}
        return handle

    def update(self, handle, finite):
        handle.good = self.rows[handle.row]
        super().update(handle, finite)
        self.rows[handle.row] = handle.good


@breaks("MACHINE-next-step", "planted: unscaling the result of the last scaling returns its argument, after a step as well")
class RemembersTheUnscaledTree(Plain):
    def scale(self, handle, tree):
        handle.argument, handle.result = tree, super().scale(handle, tree)
        return handle.result

    def unscale(self, handle, tree):
        return handle.argument if tree is getattr(handle, "result", None) else super().unscale(handle, tree)


@breaks("MACHINE-next-step", "planted: a loss that overflows when it is scaled counts as an overflow of the step")
class CountsAnInfiniteLoss(Plain):
    def scale(self, handle, tree):
        result = super().scale(handle, tree)
        handle.infinite = getattr(handle, "infinite", False) or not self.all_finite(result)
        return result

    def was_finite(self, handle, finite):
        infinite, handle.infinite = getattr(handle, "infinite", False), False
        return finite and not infinite


@breaks("MACHINE-backoff", "planted: a limit that was meant for runs that have diverged", "torch")
class RaisesAfterAHundredOverflows(Plain):
    def overflow_step(self, handle):
        handle.bad_in_a_row = 0 if handle.good else getattr(handle, "bad_in_a_row", 0) + 1
        if handle.bad_in_a_row > 100:
            raise RuntimeError("the last 100 steps have overflowed")
        super().overflow_step(handle)


@breaks("MACHINE-every-sequence", "planted: the constants of a scaler are limited to reasonable ones", "torch")
class LimitsTheBackoffFactor(Plain):
    def constants(self, rule):
        return replace(rule, backoff_factor=max(rule.backoff_factor, 0.1))


@breaks("MACHINE-every-sequence", "planted: factors have three digits in a table", "torch")
class RoundsFactorsToThreeDigits(Plain):
    def constants(self, rule):
        return replace(rule, growth_factor=round(rule.growth_factor, 3) if rule.growth_factor < 1.001 else rule.growth_factor)


@breaks(
    "MACHINE-every-sequence", "planted: steps are multiplied by the reciprocal of the window; 107 * (1 / 107) is below 1", "torch"
)
class CountsPartsOfTheWindow(Plain):
    def growth_due(self, handle):
        return handle.good * (1 / self.window(handle)) >= 1


@breaks("MACHINE-every-sequence", "planted: overflows before the latest 250 finite steps are forgotten", "megatron")
class ForgetsOldOverflows(Plain):
    def resets_overflows(self, handle, event):
        return handle.good > 250 or super().resets_overflows(handle, event)


@breaks("STEP-resume", "planted: a state is loaded into the latest scaler, too, if that has not taken a step")
class LoadsIntoTheLatestScaler(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule, **options)
        return self.latest

    def load(self, rule, saved):
        latest = self.latest
        if latest.rule == rule and not hasattr(latest, "updated"):
            vars(latest).update(saved)
        return super().load(rule, saved)

    def update(self, handle, finite):
        handle.updated = True
        super().update(handle, finite)


@breaks("MACHINE-next-step", "planted: the divisor is computed at the start, and after each update, but not after loading")
class LoadsWithoutItsDivisor(Plain):
    def create(self, rule, **options):
        handle = super().create(rule, **options)
        handle.divisor = handle.shown
        return handle

    def update(self, handle, finite):
        super().update(handle, finite)
        handle.divisor = handle.shown

    def unscale(self, handle, tree):
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, handle.divisor), tree)


@breaks("MACHINE-next-step", "planted: copies of the scale for float16 arrays are stored by initial scale")
class SharesScalesOfFloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, self.divisor if leaf.dtype == np.float16 else scale)

    def unscale(self, handle, tree):
        self.divisor = self.__dict__.setdefault("divisors", {}).setdefault(handle.rule.init_scale, handle.shown)
        return super().unscale(handle, tree)

    def update(self, handle, finite):
        super().update(handle, finite)
        if not finite:
            self.__dict__.setdefault("divisors", {}).pop(handle.rule.init_scale, None)


@breaks("MACHINE-next-step", "planted: a step without gradients counts as a skipped one")
class EndsTheWindowAtAnEmptyTree(Plain):
    def unscale(self, handle, tree):
        handle.good = handle.good if tree else self.count_after_overflow(handle)
        return super().unscale(handle, tree)
