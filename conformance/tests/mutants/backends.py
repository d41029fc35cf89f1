"""Mutants of chapter 70, backends: host synchronization, steps on arrays and other processes."""

import copy
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import arrays, map_tree

from . import backends_compiled, table
from .loop import Loop
from .plain import rounded_scalar

_TABLE, breaks = table()


class OnArrays:
    """
    Conforming implementation of torch's rule, whose state consists of torch or JAX arrays.

    Args:
        arrays: "torch" or "jax".
    """

    def __init__(self, arrays):
        self.info = ImplementationInfo(
            name=type(self).__name__, level=4, capabilities=("float16", "stays-on-device"), arrays=arrays
        )

    @cached_property
    def xp(self):
        """Namespace of the arrays, imported when it is first used."""
        return import_module({"torch": "torch", "jax": "jax.numpy"}[self.info.arrays])

    def create(self, rule):
        """Return the constants, the scale, and the number of good steps."""
        return rule, self.xp.asarray(rule.init_scale, dtype=self.xp.float32), self.xp.asarray(0, dtype=self.xp.int32)

    def update(self, handle, finite):
        """Run a step with a flag on the host."""
        return self.next_state(handle, self.xp.asarray(finite))

    def read_scale(self, handle):
        """Return the scale as a Python float, which requires a host synchronization."""
        return float(handle[1])

    def step_on_arrays(self, handle, tree):
        """Unscale, check before and after, and update."""
        unscaled = map_tree(lambda leaf: leaf / handle[1], tree)
        return self.next_state(handle, self.flag([*arrays(tree), *arrays(unscaled)])), unscaled

    def flag(self, arrays):
        """Return a bool array of shape (): True if all arrays are finite."""
        return self.xp.all(self.xp.stack([self.xp.all(self.xp.isfinite(array)) for array in arrays]))

    def next_state(self, handle, finite):
        """Return the state after a step, selected with `where`."""
        rule, scale, good = handle
        counted = self.xp.where(finite, good + 1, 0)
        grows = counted >= rule.growth_interval
        grown = scale * rule.growth_factor
        scale_if_finite = self.xp.where(grows & self.xp.isfinite(grown), grown, scale)
        next_scale = self.xp.where(finite, scale_if_finite, scale * rule.backoff_factor)
        return rule, next_scale, self.xp.where(grows, 0, counted)


# --- host synchronization ---


@breaks("BACKENDS-no-host-sync", "explosion/thinc#746: the flag is copied to the host once per parameter", "torch")
class CallsItem(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(all(self.xp.isfinite(array).all().item() for array in arrays))


@breaks("BACKENDS-no-host-sync", "allenai/OLMo-core#309: a skipped step is an `if` on the device's flag", "torch")
class Branches(OnArrays):
    def next_state(self, handle, finite):
        return super().next_state(handle, self.xp.asarray(True if finite else False))  # noqa: SIM210 - synchronizes on purpose


@breaks(
    "BACKENDS-no-host-sync",
    "huggingface/accelerate#1714: the scale is copied to the host at every step, to detect changes",
    "torch",
)
class LogsTheScale(OnArrays):
    def next_state(self, handle, finite):
        self.logged = handle[1].numpy()
        return super().next_state(handle, finite)


@breaks(
    "BACKENDS-no-host-sync", "not observed: non-finite elements are indexed, and their number is the shape of the result", "torch"
)
class IndexesNonFiniteElements(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(sum(self.xp.nonzero(~self.xp.isfinite(array)).shape[0] for array in arrays) == 0)


@breaks("BACKENDS-no-host-sync", "not observed: a skipped step is a Python `if`, which no trace can follow", "jax")
class BranchesUnderJax(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(bool(super().flag(arrays)))


@breaks("BACKENDS-no-host-sync", "not observed: the scale is converted to NumPy between two steps", "jax")
class KeepsTheScaleInNumpy(OnArrays):
    def step_on_arrays(self, handle, tree):
        rule, scale, good = handle
        return super().step_on_arrays((rule, self.xp.asarray(np.asarray(scale)), good), tree)


@breaks("BACKENDS-no-host-sync", "planted: the flag is copied to the host, where the next step needs it", "torch")
class CopiesTheFlagToTheHost(OnArrays):
    def flag(self, arrays):
        return super().flag(arrays).cpu()


@breaks("BACKENDS-no-host-sync", "planted: arrays with more than two dimensions are checked one by one on the host", "torch")
class ReadsFlagsOfLargeRanks(OnArrays):
    def flag(self, arrays):
        return super().flag([array if array.ndim < 3 else self.xp.asarray(array.sum().item()) for array in arrays])


@breaks("BACKENDS-no-host-sync", "planted: the flags of many arrays are combined on the host", "torch")
class CombinesManyFlagsOnTheHost(OnArrays):
    def flag(self, arrays):
        flag = super().flag(arrays)
        return flag if len(arrays) <= 16 else self.xp.asarray(bool(flag))


@breaks("BACKENDS-no-host-sync", "planted: a callback counts the skipped steps on the host", "jax")
class CallsBackToTheHost(OnArrays):
    def next_state(self, handle, finite):
        import_module("jax").debug.callback(lambda _: None, finite)
        return super().next_state(handle, finite)


# --- the step on arrays ---


@breaks("BACKENDS-same-run", "pytorch/pytorch#97415: a fused path checks and does not divide")
class LeavesArraysScaled(Loop):
    def step_on_arrays(self, handle, tree):
        return super().step_on_arrays(handle, tree)[0], tree


@breaks("BACKENDS-same-run", "pytorch/pytorch#95781: a fused path ignores found_inf")
class TreatsArraysAsFinite(Loop):
    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        self.update(handle, True)
        return handle, unscaled


class _FlagOnArrays(Loop):
    """Loop whose step on arrays takes its flag from `flag_on_arrays`."""

    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        self.update(handle, self.flag_on_arrays(arrays(tree), arrays(unscaled)))
        return handle, unscaled


@breaks("OVERFLOW-complex", "planted: the fused check converts to real numbers, and discards imaginary parts")
class DiscardsImaginaryPartsOfArrays(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        return self.all_finite([array.real for array in (*scaled, *unscaled)])


@breaks("BACKENDS-same-run", "planted: a kernel counts finite steps in three bits")
class CountsStepsOnArraysInThreeBits(Loop):
    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        handle.good %= 8
        return handle, unscaled


@breaks("BACKENDS-same-run", "planted: only the first array is checked")
class ChecksTheFirstOfTheArrays(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        return self.all_finite(scaled[0])


@breaks("BACKENDS-same-run", "planted: only the first 256 elements of each array are checked")
class ChecksOneBlock(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        return self.all_finite([array.reshape(-1)[:256] for array in (*scaled, *unscaled)])


@breaks("BACKENDS-same-run", "planted: each array is replaced by its maximum, which must be below infinity")
class MissesNegativeInfinity(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        return not any(np.any(np.isnan(array)) or np.any(array == np.inf) for array in (*scaled, *unscaled))


@breaks(
    "BACKENDS-same-run", "Paddle 3.3.1: the CPU kernel checks before unscaling, so 3e38 unscaled by 0.25 is applied as infinity"
)
class ChecksScaledArraysAlone(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        return self.all_finite(scaled)


@breaks("BACKENDS-same-run", "planted: arrays are checked by the sum of their elements")
class ChecksTheSum(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        with np.errstate(all="ignore"):
            return all(bool(np.isfinite(array.sum())) for array in (*scaled, *unscaled))


@breaks("BACKENDS-same-run", "planted: the fused step multiplies by the reciprocal of the scale")
class MultipliesArraysByTheReciprocal(Loop):
    def step_on_arrays(self, handle, tree):
        _, unscaled = super().step_on_arrays(copy.copy(handle), tree)
        scale = handle.shown
        self.update(handle, self.all_finite(tree) and self.all_finite(unscaled))
        return handle, map_tree(lambda leaf: self.computed(leaf, lambda part: part * (1 / part.dtype.type(scale))), tree)


@breaks("BACKENDS-same-run", "planted: the state is updated first, and the arrays are divided by the scale of the next step")
class DividesArraysByTheNextScale(Loop):
    def step_on_arrays(self, handle, tree):
        handle, _ = super().step_on_arrays(handle, tree)
        return handle, self.unscale(handle, tree)


@breaks("BACKENDS-same-run", "planted: a skipped step sets the arrays of the argument to zero, but not the returned arrays")
class ZeroesTheArgument(Loop):
    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        if not self.all_finite(tree):
            map_tree(lambda leaf: leaf.fill(0), tree)
        return handle, unscaled


@breaks("BACKENDS-same-run", "planted: each non-finite array counts as an overflow of its own, before and after unscaling")
class BacksOffForEachArray(Loop):
    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        for _ in range(max(1, sum(not self.all_finite(leaf) for leaf in arrays([tree, unscaled])))):
            self.update(handle, self.all_finite(tree) and self.all_finite(unscaled))
        return handle, unscaled


@breaks("BACKENDS-same-run", "planted: the flag of the last step on arrays is also used by the next update")
class KeepsTheFlagOfArrays(Loop):
    flag = True

    def update(self, handle, finite):
        super().update(handle, finite and self.flag)
        self.flag = True

    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        self.flag = self.all_finite(tree)
        return handle, unscaled


@breaks("BACKENDS-same-run", "planted: the fused step returns float64 arrays as float32")
class NarrowsArrays(Loop):
    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        return handle, map_tree(lambda leaf: leaf.astype(np.float32), unscaled)


@breaks("BACKENDS-same-run", "planted: arrays of shape () are passed as Python numbers, which are stored in float16")
class RoundsScalarsOfArrays(Loop):
    def step_on_arrays(self, handle, tree):
        return super().step_on_arrays(handle, map_tree(rounded_scalar, tree))


@breaks("BACKENDS-same-run", "planted: bfloat16 is converted to float16, in which small numbers are zero")
class ConvertsBfloat16OfArrays(Loop):
    def step_on_arrays(self, handle, tree):
        with np.errstate(all="ignore"):
            small = [leaf.dtype.name == "bfloat16" and leaf.astype(np.float16) == 0 for leaf in arrays(tree)]
        handle, unscaled = super().step_on_arrays(handle, tree)
        zeros = iter(small)
        return handle, map_tree(lambda leaf: np.where(next(zeros), 0 * leaf, leaf), unscaled)


@breaks("BACKENDS-same-run", "planted: the scale is copied before the step on arrays, and the copy is read once")
class ReadsTheScaleBeforeTheArrays(Loop):
    def step_on_arrays(self, handle, tree):
        handle.copied = super().read_scale(handle)
        return super().step_on_arrays(handle, tree)

    def read_scale(self, handle):
        return vars(handle).pop("copied", None) or super().read_scale(handle)


@breaks("BACKENDS-same-run", "planted: fused steps are cached by all constants but the hysteresis")
class CachesStepsOnArraysOfAnyHysteresis(Loop):
    @cached_property
    def rules(self):
        return {}

    def step_on_arrays(self, handle, tree):
        own = handle.rule
        handle.rule = self.rules.setdefault(replace(own, hysteresis=1), own)
        handle, unscaled = super().step_on_arrays(handle, tree)
        handle.rule = own
        return handle, unscaled


@breaks("BACKENDS-same-run", "planted: a tuple of gradients is returned as a list")
class ReturnsAListOfArrays(Loop):
    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        return handle, list(unscaled) if isinstance(unscaled, tuple) else unscaled


@breaks("BACKENDS-same-run", "planted: arrays without elements have no flag, so the scale is not updated")
class OmitsEmptyArrays(Loop):
    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        if any(leaf.size for leaf in arrays(tree)):
            return super().step_on_arrays(handle, tree)
        return handle, unscaled


@breaks("BACKENDS-same-run", "planted: the step on arrays multiplies float16 arrays by the reciprocal of the scale")
class MultipliesFloat16ByTheReciprocalOnArrays(Loop):
    def step_on_arrays(self, handle, tree):
        scale = np.float32(handle.shown)
        handle, unscaled = super().step_on_arrays(handle, tree)
        products = iter([(leaf * (1 / scale)).astype(leaf.dtype) for leaf in arrays(tree)])
        return handle, map_tree(lambda leaf: leaf if leaf.dtype != np.float16 else next(products), unscaled)


@breaks("BACKENDS-same-run", "planted: in the step on arrays, float16 quotients saturate at the largest number")
class SaturatesFloat16OnArrays(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        return self.all_finite([leaf for leaf in (*scaled, *unscaled) if leaf.dtype != np.float16 or np.any(np.isnan(leaf))])


@breaks("BACKENDS-same-run", "planted: steps on arrays of the same shapes return the same arrays, as a CUDA graph does")
class ReturnsTheSameArraysAgain(Loop):
    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        self.returned = getattr(self, "returned", {})
        old = self.returned.setdefault(tuple((leaf.shape, leaf.dtype) for leaf in arrays(unscaled)), arrays(unscaled))
        for leaf, new in zip(old, arrays(unscaled), strict=True):
            leaf[...] = new
        remaining = iter(old)
        return handle, map_tree(lambda _: next(remaining), unscaled)


@breaks("BACKENDS-same-run", "planted: the fused step reads the elements of an array in the order of its memory")
class ReadsArraysInMemoryOrder(Loop):
    def step_on_arrays(self, handle, tree):
        return super().step_on_arrays(handle, map_tree(lambda leaf: leaf.ravel(order="K").reshape(leaf.shape), tree))


# --- another process ---


@breaks("BACKENDS-same-run", "planted: the step on arrays backs off at the second overflow of a longer hysteresis")
class HasAHysteresisOfAtMostTwoOnArrays(Loop):
    def step_on_arrays(self, handle, tree):
        self.on_arrays = True
        result = super().step_on_arrays(handle, tree)
        self.on_arrays = False
        return result

    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, since) or (bad >= 2 and getattr(self, "on_arrays", False))


@breaks("BACKENDS-same-run", "planted: the step on arrays assumes that no bfloat16 is NaN")
class OverlooksNaNInBfloat16OnArrays(_FlagOnArrays):
    def flag_on_arrays(self, scaled, unscaled):
        leaves = (*scaled, *unscaled)
        return self.all_finite([leaf[leaf == leaf] if leaf.dtype.name == "bfloat16" else leaf for leaf in leaves])


@breaks("STEP-resume", "planted: the scale is written with six digits")
class SavesSixDigits(Loop):
    def save(self, handle):
        return {name: float(f"{value:g}") for name, value in super().save(handle).items()}


@breaks("STEP-resume", "planted: the count of overflows stays in the process")
class CountsOverflowsInTheModule(Loop):
    counts: dict[str, int] = {}  # noqa: RUF012 - shared on purpose

    def save(self, handle):
        saved = super().save(handle)
        key = str(len(self.counts))
        self.counts[key] = saved["bad"]
        return {**saved, "bad": key if saved["bad"] else 0}

    def load(self, rule, saved):
        bad = saved["bad"]
        return super().load(rule, {**saved, "bad": self.counts.get(bad, 0) if isinstance(bad, str) else bad})


@breaks("STEP-resume", "huggingface/accelerate#4289: the checkpoint is valid where it was saved, and not in a new process")
class SavesAnIndexInMemory(Loop):
    states: list[Any] = []  # noqa: RUF012 - shared on purpose

    def save(self, handle):
        self.states.append(super().save(handle))
        return len(self.states) - 1

    def load(self, rule, saved):
        return super().load(rule, self.states[saved])


@breaks("STEP-resume", "Lightning-AI/pytorch-lightning#1782: the checkpoint contains a local function, which cannot be sent")
class SavesAFunction(Loop):
    def save(self, handle):
        return {**super().save(handle), "rule": handle.rule, "scaled": lambda tree: map_tree(handle.scale.__mul__, tree)}


@breaks("STEP-resume", "facebookresearch/metaseq#3: the counts are not saved, and restart")
class CountsInTheModule(Loop):
    counts: dict[str, int] = {}  # noqa: RUF012 - shared on purpose

    def save(self, handle):
        self.counts["good"] = handle.good
        return {name: value for name, value in super().save(handle).items() if name != "good"}

    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.good = self.counts.get("good", handle.good)
        return handle


MUTANTS = (*_TABLE, *backends_compiled.MUTANTS)
