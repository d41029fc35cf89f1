"""Mutants of chapter 70, backends: host synchronization, compilation and other processes."""

import copy
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import arrays, map_tree

from . import table
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


@breaks("BACKENDS-same-run", "planted: a tuple of gradients is returned as a list")
class ReturnsAListOfArrays(Loop):
    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        return handle, list(unscaled) if isinstance(unscaled, tuple) else unscaled


# --- compiled ---


class _CompilesToAnotherClass(Loop):
    """Implementation whose compiled form is another class."""

    def compiled(self):
        return self.compiled_form(self.info.preset, self.info.level, self.info.capabilities)

    compiled_form: type[Loop] = Loop


class _MinimumOfOne(Loop):
    def constants(self, rule):
        return rule if rule.min_scale is None else replace(rule, min_scale=1.0)


class _NoSignedZeros(Loop):
    def quotient(self, part, scale):
        return super().quotient(part, scale) + part.dtype.type(0)


class _NoInfinities(Loop):
    def finite_elements(self, leaf):
        return leaf == leaf


@breaks("STEP-compiled", "jmp 0.0.4: the minimum is not part of the pytree, and becomes the default")
class LosesMinimumCompiled(_CompilesToAnotherClass):
    compiled_form = _MinimumOfOne


@breaks("STEP-compiled", "not observed: the compiler treats -0.0 as 0.0, as fast math permits")
class LosesSignsOfZerosCompiled(_CompilesToAnotherClass):
    compiled_form = _NoSignedZeros


@breaks("STEP-compiled", "AMReX-Codes/amrex#5667, opencv/opencv#23881: the compiler assumes that every number is finite")
class TreatsInfinityAsFiniteCompiled(_CompilesToAnotherClass):
    compiled_form = _NoInfinities


class _LosesHysteresis(Loop):
    def backoff_due(self, handle, bad, since):
        return True


class _UsesTheFirstConstants(Loop):
    """Loop whose constants, except the initial scale and the bounds, are those of its first scaler."""

    first = None

    def constants(self, rule):
        self.first = self.first or rule
        return replace(self.first, init_scale=rule.init_scale, min_scale=rule.min_scale, max_scale=rule.max_scale)


class _SavesNoCount(Loop):
    def save(self, handle):
        return {**super().save(handle), "good": 0}


class _KeepsTheFirstScale(Loop):
    first_handle = None

    def scale(self, handle, tree):
        self.first_handle = self.first_handle or replace(handle)
        return super().scale(self.first_handle, tree)


class _SumsInTheCheck(Loop):
    def all_finite(self, tree):
        with np.errstate(all="ignore"):
            return all(bool(np.isfinite(leaf.sum())) for leaf in arrays(tree))

    def step_on_arrays(self, handle, tree):
        return Loop().step_on_arrays(handle, tree)


@breaks("STEP-compiled", "planted: the compiled update backs off at each overflow")
class LosesHysteresisCompiled(_CompilesToAnotherClass):
    compiled_form = _LosesHysteresis


@breaks("STEP-compiled", "planted: the constants of the first scaler are compiled into the function that all scalers share")
class SharesConstantsCompiled(_CompilesToAnotherClass):
    compiled_form = _UsesTheFirstConstants


@breaks("STEP-compiled", "planted: the compiled state has no count, which a loaded scaler then lacks")
class SavesNoCountCompiled(_CompilesToAnotherClass):
    compiled_form = _SavesNoCount


@breaks("STEP-compiled", "planted: losses are multiplied by the scale at the time of compilation")
class KeepsTheFirstScaleCompiled(_CompilesToAnotherClass):
    compiled_form = _KeepsTheFirstScale


@breaks("STEP-compiled", "planted: the compiled check tests the sum of each array")
class SumsInTheCheckCompiled(_CompilesToAnotherClass):
    compiled_form = _SumsInTheCheck


class _AppliesToVelocities(Loop):
    def skip(self, cell, gradients, rate):
        parameters = cell.parameters
        self.apply(cell, gradients, rate)
        cell.parameters = parameters


@breaks("STEP-compiled", "planted: a compiled cell selects the parameters by the flag, and not the velocities")
class SpoilsVelocitiesCompiled(_CompilesToAnotherClass):
    compiled_form = _AppliesToVelocities


class _KeepsItsFirstWindow(Loop):
    first = None

    def window(self, handle):
        self.first = self.first or super().window(handle)
        return self.first


@breaks("STEP-compiled", "planted: the growth interval of the first scaler is compiled into the update")
class KeepsTheFirstWindowCompiled(_CompilesToAnotherClass):
    compiled_form = _KeepsItsFirstWindow


class _BacksOffTwice(Loop):
    def reduced(self, handle):
        reduced = super().reduced(handle)
        return reduced if handle.bad < 2 else self.rounded(handle.rule, reduced * handle.rule.backoff_factor)


@breaks("STEP-compiled", "planted: the compiled update backs off once more at the third overflow of a hysteresis")
class BacksOffTwiceCompiled(_CompilesToAnotherClass):
    compiled_form = _BacksOffTwice


class _KeepsThreeOverflowsOverAFiniteStep(Loop):
    def resets_overflows(self, handle, event):
        return super().resets_overflows(handle, event) and (event == "growth" or handle.bad < 3)


class _KeepsOverflowsOverAGrowth(Loop):
    def resets_overflows(self, handle, event):
        return super().resets_overflows(handle, event) and event == "finite"


class _ResetsOverflowsAtAFiniteStep(Loop):
    def resets_overflows(self, handle, event):
        return True


class _ResetsOverflowsAtABackoff(Loop):
    def bad_after_backoff(self, handle):
        return 0


class _HasAHysteresisOfAtMostThree(Loop):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, since) or bad >= 3


@breaks("STEP-compiled", "planted: the compiled update resets the overflow count at a finite step only if it is less than three")
class KeepsThreeOverflowsOverAFiniteStepCompiled(_CompilesToAnotherClass):
    compiled_form = _KeepsThreeOverflowsOverAFiniteStep


@breaks("STEP-compiled", "planted: the branch of the compiled update that grows does not reset the overflow count")
class KeepsOverflowsOverAGrowthCompiled(_CompilesToAnotherClass):
    compiled_form = _KeepsOverflowsOverAGrowth


@breaks("STEP-compiled", "planted: the compiled update resets the overflow count at each finite step", "paddle_document")
class ResetsOverflowsAtAFiniteStepCompiled(_CompilesToAnotherClass):
    compiled_form = _ResetsOverflowsAtAFiniteStep


@breaks("STEP-compiled", "planted: the compiled update resets the overflow count at a backoff", "megatron")
class ResetsOverflowsAtABackoffCompiled(_CompilesToAnotherClass):
    compiled_form = _ResetsOverflowsAtABackoff


@breaks("STEP-compiled", "planted: the compiled update backs off at the third overflow of a longer hysteresis")
class HasAHysteresisOfAtMostThreeCompiled(_CompilesToAnotherClass):
    compiled_form = _HasAHysteresisOfAtMostThree


class _LoadsNoOverflows(Loop):
    def load(self, rule, saved):
        return super().load(rule, {**saved, "bad": 0})


@breaks("STEP-compiled", "planted: the count of overflows of a loaded state is not passed to the compiled update")
class LoadsNoOverflowsCompiled(_CompilesToAnotherClass):
    compiled_form = _LoadsNoOverflows


class _MultipliesFloat16ByTheReciprocal(Loop):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16:
            return super().unscaled_leaf(leaf, scale)
        return (leaf.astype(np.float32) * (np.float32(1) / np.float32(scale))).astype(np.float16)


@breaks("STEP-compiled", "planted: compiled code multiplies float16 arrays by the reciprocal of the scale")
class MultipliesFloat16ByTheReciprocalCompiled(_CompilesToAnotherClass):
    compiled_form = _MultipliesFloat16ByTheReciprocal


class _MultipliesFloat64ByTheReciprocal(Loop):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float64:
            return super().unscaled_leaf(leaf, scale)
        return leaf * (np.float64(1) / np.float64(scale))


@breaks("STEP-compiled", "planted: compiled code multiplies float64 arrays by the reciprocal of the scale")
class MultipliesFloat64ByTheReciprocalCompiled(_CompilesToAnotherClass):
    compiled_form = _MultipliesFloat64ByTheReciprocal


class _KeepsDtypesByCount(Loop):
    def scale(self, handle, tree):
        self.dtypes = getattr(self, "dtypes", {})
        leaves = arrays(tree)
        dtypes = iter(self.dtypes.setdefault(len(leaves), [leaf.dtype for leaf in leaves]))
        return map_tree(lambda leaf: leaf.astype(next(dtypes)), super().scale(handle, tree))


@breaks(
    "STEP-compiled", "planted: compiled functions are kept by the number of arrays, and return the dtypes of their first call"
)
class KeepsDtypesByCountCompiled(_CompilesToAnotherClass):
    compiled_form = _KeepsDtypesByCount


class _HasNoFlagOfEmptyArrays(Loop):
    def all_finite(self, tree):
        return super().all_finite(tree) if any(leaf.size for leaf in arrays(tree)) else None

    def step_on_arrays(self, handle, tree):
        return Loop().step_on_arrays(handle, tree)


@breaks("STEP-compiled", "planted: the compiled check returns None for arrays without elements")
class HasNoFlagOfEmptyArraysCompiled(_CompilesToAnotherClass):
    compiled_form = _HasNoFlagOfEmptyArrays


class _MultipliesByTheReciprocalInCells(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return gradient * (gradient.dtype.type(1) / gradient.dtype.type(cell.scaler.shown))


@breaks("STEP-compiled", "planted: compiled cells multiply by the reciprocal of the scale")
class MultipliesByTheReciprocalInCellsCompiled(_CompilesToAnotherClass):
    compiled_form = _MultipliesByTheReciprocalInCells


class _KeepsTheFirstMinimum(Loop):
    def create(self, rule, **options):
        self.rules = getattr(self, "rules", {})
        return super().create(self.rules.setdefault(replace(rule, min_scale=None), rule), **options)


@breaks("STEP-compiled", "planted: compiled updates are kept for all equal rules, and equality ignores the minimum")
class KeepsTheFirstMinimumCompiled(_CompilesToAnotherClass):
    compiled_form = _KeepsTheFirstMinimum


class _ChecksOnlyBefore(Loop):
    def step_on_arrays(self, handle, tree):
        self.update(handle, self.all_finite(tree))
        return handle, self.unscale(handle, tree)


@breaks("STEP-compiled", "planted: the compiled step on arrays checks them before the division only")
class ChecksOnlyBeforeCompiled(_CompilesToAnotherClass):
    compiled_form = _ChecksOnlyBefore


@breaks("BACKENDS-same-run", "planted: arrays without elements have no flag, so the scale is not updated")
class OmitsEmptyArrays(Loop):
    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        if any(leaf.size for leaf in arrays(tree)):
            return super().step_on_arrays(handle, tree)
        return handle, unscaled


class _RoundsRates(Loop):
    def rate(self, cell):
        return float(np.float16(super().rate(cell)))


@breaks("STEP-compiled", "planted: learning rates are compiled in as float16 numbers")
class RoundsRatesCompiled(_CompilesToAnotherClass):
    compiled_form = _RoundsRates


class _SquaresInFloat32(Loop):
    def euclidean(self, arrays):
        with np.errstate(all="ignore"):
            return float(np.sqrt(sum(np.sum(array.astype(np.float32) ** 2) for array in arrays)))


@breaks("STEP-compiled", "planted: the compiled norm is computed in float32, in which large squares are infinite")
class SquaresInFloat32Compiled(_CompilesToAnotherClass):
    compiled_form = _SquaresInFloat32


class _UsesItsOwnFlag(Loop):
    def agreed_flag(self, finite, rank):
        return finite[rank]


@breaks("STEP-compiled", "planted: compiled replicas do not agree on the flag")
class UsesItsOwnFlagCompiled(_CompilesToAnotherClass):
    compiled_form = _UsesItsOwnFlag


class _HasNoFlagOfEmptyTrees(Loop):
    def all_finite(self, tree):
        return super().all_finite(tree) if arrays(tree) else None


@breaks("STEP-compiled", "planted: the compiled check returns None for a tree without arrays")
class HasNoFlagOfEmptyTreesCompiled(_CompilesToAnotherClass):
    compiled_form = _HasNoFlagOfEmptyTrees


class _ChecksFloat64InFloat32(Loop):
    def all_finite(self, tree):
        with np.errstate(all="ignore"):
            return super().all_finite([leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf for leaf in arrays(tree)])

    def step_on_arrays(self, handle, tree):
        return Loop().step_on_arrays(handle, tree)


@breaks("STEP-compiled", "planted: the compiled check casts float64 arrays to float32, in which large numbers are infinite")
class ChecksFloat64InFloat32Compiled(_CompilesToAnotherClass):
    compiled_form = _ChecksFloat64InFloat32


class _FlushesSubnormals(Loop):
    def unscaled_leaf(self, leaf, scale):
        unscaled = super().unscaled_leaf(leaf, scale)
        return np.where(np.abs(unscaled) < 2.0**-126, 0 * unscaled, unscaled) if leaf.dtype == np.float32 else unscaled


@breaks("STEP-compiled", "planted: compiled arithmetic replaces subnormal float32 numbers by zero")
class FlushesSubnormalsCompiled(_CompilesToAnotherClass):
    compiled_form = _FlushesSubnormals


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


# --- another process ---


@breaks("STEP-resume", "planted: the scale is written with six digits")
class SavesSixDigits(Loop):
    def save(self, handle):
        return {name: float(f"{value:g}") for name, value in super().save(handle).items()}


@breaks("STEP-resume", "planted: the count of overflows stays in the process")
class CountsOverflowsInTheModule(Loop):
    counts: dict[str, int] = {}  # noqa: RUF012 - shared on purpose

    def save(self, handle):
        saved = super().save(handle)
        return {**saved, "bad": self.counts.setdefault(str(len(self.counts)), saved["bad"]) and str(len(self.counts) - 1)}

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


MUTANTS = tuple(_TABLE)
