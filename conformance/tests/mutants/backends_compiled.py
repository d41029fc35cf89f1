"""Mutants of chapter 70, backends: compiled functions that differ from the uncompiled ones."""

from dataclasses import replace

import numpy as np
from ampscale_conformance.model.bits import arrays, map_tree

from . import table
from .loop import Loop
from .step import MovesWithoutAGradient

_TABLE, breaks = table()


class _CompilesToAnotherClass(Loop):
    """Implementation whose compiled form is another class."""

    compiled_form: type[Loop]

    def compiled(self):
        return self.compiled_form(self.info.preset, self.info.level, self.info.capabilities)


def breaks_compiled(source, *arguments):
    """Return a decorator of the compiled form of a mutant, whose name is that of the class with "-compiled"."""

    def add(cls):
        form = type(f"{cls.__name__}Compiled", (_CompilesToAnotherClass,), {"compiled_form": cls})
        breaks("STEP-compiled", source, *arguments)(form)
        return cls

    return add


@breaks_compiled("jmp 0.0.4: the minimum is not part of the pytree, and becomes the default")
class LosesMinimum(Loop):
    def constants(self, rule):
        return rule if rule.min_scale is None else replace(rule, min_scale=1.0)


@breaks_compiled("not observed: the compiler treats -0.0 as 0.0, as fast math permits")
class LosesSignsOfZeros(Loop):
    def quotient(self, part, scale):
        return super().quotient(part, scale) + part.dtype.type(0)


@breaks_compiled("AMReX-Codes/amrex#5667, opencv/opencv#23881: the compiler assumes that every number is finite")
class TreatsInfinityAsFinite(Loop):
    def finite_elements(self, leaf):
        return leaf == leaf


@breaks_compiled("planted: the compiled update backs off at each overflow")
class LosesHysteresis(Loop):
    def backoff_due(self, handle, bad, since):
        return True


@breaks_compiled("planted: the constants of the first scaler are compiled into the function that all scalers share")
class SharesConstants(Loop):
    """Loop whose constants, except the initial scale and the bounds, are those of its first scaler."""

    first = None

    def constants(self, rule):
        self.first = self.first or rule
        return replace(self.first, init_scale=rule.init_scale, min_scale=rule.min_scale, max_scale=rule.max_scale)


@breaks_compiled("planted: the compiled state has no count, which a loaded scaler then lacks")
class SavesNoCount(Loop):
    def save(self, handle):
        return {**super().save(handle), "good": 0}


@breaks_compiled("planted: losses are multiplied by the scale at the time of compilation")
class KeepsTheFirstScale(Loop):
    first_handle = None

    def scale(self, handle, tree):
        self.first_handle = self.first_handle or replace(handle)
        return super().scale(self.first_handle, tree)


@breaks_compiled("planted: the compiled check tests the sum of each array")
class SumsInTheCheck(Loop):
    def all_finite(self, tree):
        with np.errstate(all="ignore"):
            return all(bool(np.isfinite(leaf.sum())) for leaf in arrays(tree))

    def step_on_arrays(self, handle, tree):
        return Loop().step_on_arrays(handle, tree)


@breaks_compiled("planted: a compiled cell selects the parameters by the flag, and not the velocities")
class SpoilsVelocities(Loop):
    def skip(self, cell, gradients, rate):
        parameters = cell.parameters
        self.apply(cell, gradients, rate)
        cell.parameters = parameters


@breaks_compiled("planted: the growth interval of the first scaler is compiled into the update")
class KeepsTheFirstWindow(Loop):
    first = None

    def window(self, handle):
        self.first = self.first or super().window(handle)
        return self.first


@breaks_compiled("planted: the compiled update backs off once more at the third overflow of a hysteresis")
class BacksOffTwice(Loop):
    def reduced(self, handle):
        reduced = super().reduced(handle)
        return reduced if handle.bad < 2 else self.rounded(handle.rule, reduced * handle.rule.backoff_factor)


@breaks_compiled("planted: the compiled update resets the overflow count at a finite step only if it is less than three")
class KeepsThreeOverflowsOverAFiniteStep(Loop):
    def resets_overflows(self, handle, event):
        return super().resets_overflows(handle, event) and (event == "growth" or handle.bad < 3)


@breaks_compiled("planted: the branch of the compiled update that grows does not reset the overflow count")
class KeepsOverflowsOverAGrowth(Loop):
    def resets_overflows(self, handle, event):
        return super().resets_overflows(handle, event) and event == "finite"


@breaks_compiled("planted: the compiled update resets the overflow count at each finite step", "paddle_document")
class ResetsOverflowsAtAFiniteStep(Loop):
    def resets_overflows(self, handle, event):
        return True


@breaks_compiled("planted: the compiled update resets the overflow count at a backoff", "megatron")
class ResetsOverflowsAtABackoff(Loop):
    def bad_after_backoff(self, handle):
        return 0


@breaks_compiled("planted: the compiled update backs off at the third overflow of a longer hysteresis")
class HasAHysteresisOfAtMostThree(Loop):
    def backoff_due(self, handle, bad, since):
        return super().backoff_due(handle, bad, since) or bad >= 3


@breaks_compiled("planted: the count of overflows of a loaded state is not passed to the compiled update")
class LoadsNoOverflows(Loop):
    def load(self, rule, saved):
        return super().load(rule, {**saved, "bad": 0})


@breaks_compiled("planted: compiled code multiplies float16 arrays by the reciprocal of the scale")
class MultipliesFloat16ByTheReciprocal(Loop):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16:
            return super().unscaled_leaf(leaf, scale)
        return (leaf.astype(np.float32) * (np.float32(1) / np.float32(scale))).astype(np.float16)


@breaks_compiled("planted: compiled code multiplies float64 arrays by the reciprocal of the scale")
class MultipliesFloat64ByTheReciprocal(Loop):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float64:
            return super().unscaled_leaf(leaf, scale)
        return leaf * (np.float64(1) / np.float64(scale))


@breaks_compiled("planted: compiled functions are kept by the number of arrays, and return the dtypes of their first call")
class KeepsDtypesByCount(Loop):
    def scale(self, handle, tree):
        self.dtypes = getattr(self, "dtypes", {})
        leaves = arrays(tree)
        dtypes = iter(self.dtypes.setdefault(len(leaves), [leaf.dtype for leaf in leaves]))
        return map_tree(lambda leaf: leaf.astype(next(dtypes)), super().scale(handle, tree))


@breaks_compiled("planted: the compiled check returns None for arrays without elements")
class HasNoFlagOfEmptyArrays(Loop):
    def all_finite(self, tree):
        return super().all_finite(tree) if any(leaf.size for leaf in arrays(tree)) else None

    def step_on_arrays(self, handle, tree):
        return Loop().step_on_arrays(handle, tree)


@breaks_compiled("planted: compiled cells multiply by the reciprocal of the scale")
class MultipliesByTheReciprocalInCells(Loop):
    def unscaled_in_cell(self, cell, gradient):
        return gradient * (gradient.dtype.type(1) / gradient.dtype.type(cell.scaler.shown))


@breaks_compiled("planted: compiled updates are kept for all equal rules, and equality ignores the minimum")
class KeepsTheFirstMinimum(Loop):
    def create(self, rule, **options):
        self.rules = getattr(self, "rules", {})
        return super().create(self.rules.setdefault(replace(rule, min_scale=None), rule), **options)


@breaks_compiled("planted: the compiled step on arrays checks them before the division only")
class ChecksOnlyBefore(Loop):
    def step_on_arrays(self, handle, tree):
        self.update(handle, self.all_finite(tree))
        return handle, self.unscale(handle, tree)


@breaks_compiled("planted: learning rates are compiled in as float16 numbers")
class RoundsRates(Loop):
    def rate(self, cell):
        return float(np.float16(super().rate(cell)))


@breaks_compiled("planted: the compiled norm is computed in float32, in which large squares are infinite")
class SquaresInFloat32(Loop):
    def euclidean(self, arrays):
        with np.errstate(all="ignore"):
            return float(np.sqrt(sum(np.sum(array.astype(np.float32) ** 2) for array in arrays)))


@breaks_compiled("planted: compiled replicas do not agree on the flag")
class UsesItsOwnFlag(Loop):
    def agreed_flag(self, finite, rank):
        return finite[rank]


@breaks_compiled("planted: the compiled check returns None for a tree without arrays")
class HasNoFlagOfEmptyTrees(Loop):
    def all_finite(self, tree):
        return super().all_finite(tree) if arrays(tree) else None


@breaks_compiled("planted: the compiled check casts float64 arrays to float32, in which large numbers are infinite")
class ChecksFloat64InFloat32(Loop):
    def all_finite(self, tree):
        with np.errstate(all="ignore"):
            return super().all_finite([leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf for leaf in arrays(tree)])

    def step_on_arrays(self, handle, tree):
        return Loop().step_on_arrays(handle, tree)


@breaks_compiled("planted: compiled arithmetic replaces subnormal float32 numbers by zero")
class FlushesSubnormals(Loop):
    def unscaled_leaf(self, leaf, scale):
        unscaled = super().unscaled_leaf(leaf, scale)
        return np.where(np.abs(unscaled) < 2.0**-126, 0 * unscaled, unscaled) if leaf.dtype == np.float32 else unscaled


@breaks_compiled("planted: compiled functions are kept by shapes and dtypes, and return the containers of their first call")
class KeepsContainersByArrays(Loop):
    def unscale(self, handle, tree):
        self.trees = getattr(self, "trees", {})
        unscaled = arrays(super().unscale(handle, tree))
        first = self.trees.setdefault(tuple((leaf.shape, leaf.dtype) for leaf in unscaled), tree)
        remaining = iter(unscaled)
        return map_tree(lambda _: next(remaining), first)


@breaks_compiled("planted: compiled code casts the scale to float16 for float16 arrays")
class RoundsTheScaleToFloat16(Loop):
    def scaled_leaf(self, leaf, scale):
        narrow = leaf.dtype == np.float16 and scale <= 65504
        return super().scaled_leaf(leaf, np.float32(np.float16(scale)) if narrow else scale)


@breaks_compiled("planted: the compiled check casts complex arrays to real ones")
class ChecksRealParts(Loop):
    def all_finite(self, tree):
        return super().all_finite([leaf.real for leaf in arrays(tree)])


@breaks_compiled("planted: the compiled step on arrays multiplies by the reciprocal of the scale")
class MultipliesArraysByTheReciprocal(Loop):
    def step_on_arrays(self, handle, tree):
        scale = handle.shown
        handle, unscaled = super().step_on_arrays(handle, tree)
        products = iter([self.computed(leaf, lambda part: part * (1 / part.dtype.type(scale))) for leaf in arrays(tree)])
        return handle, map_tree(lambda _: next(products), unscaled)


@breaks_compiled("planted: the compiler removes the rounding of float16 gradients, which are then finite beyond float16")
class ChecksCellsInFloat32(Loop):
    def train_step(self, cell, data):
        with np.errstate(all="ignore"):
            self.wide = [leaf.astype(np.float32) * np.float32(cell.scaler.shown) for leaf in data]
        return super().train_step(cell, data)

    def finite_in_cell(self, scaled, gradients, norm):
        return self.all_finite(self.wide)


@breaks_compiled("planted: the compiled check has eight arguments, and leaves out further arrays")
class ChecksEightArrays(Loop):
    def all_finite(self, tree):
        return super().all_finite(arrays(tree)[:8])


@breaks_compiled("planted: the compiler assumes that no bfloat16 is NaN")
class OverlooksNaNInBfloat16(Loop):
    def finite_leaf(self, leaf):
        return super().finite_leaf(np.nan_to_num(leaf.astype(np.float32)) if leaf.dtype.name == "bfloat16" else leaf)


@breaks_compiled("planted: a compiled function is kept by the number of items, whichever of them are None")
class KeepsPlacesOfNone(Loop):
    def all_finite(self, tree):
        if not isinstance(tree, list):
            return super().all_finite(tree)
        masks = self.__dict__.setdefault("masks", {})
        mask = masks.setdefault(len(tree), [leaf is not None for leaf in tree])
        return super().all_finite([leaf for leaf, is_present in zip(tree, mask, strict=True) if is_present])


@breaks_compiled("planted: the count of finite steps is a local variable of the compiled function", "torch")
class SavesNoGoodSteps(Loop):
    def saved_fields(self, handle):
        return ("scale", "shown", "bad", "since")


@breaks_compiled("planted: the compiled update of a loop has no bounds")
class LosesBoundsInLoops(Loop):
    def update_scale(self, handle):
        old_rule, handle.rule = handle.rule, replace(handle.rule, min_scale=None, max_scale=None)
        super().update_scale(handle)
        handle.rule = old_rule


@breaks_compiled("planted: the compiled update of replicas has no bounds")
class LosesBoundsOfReplicas(Loop):
    def update_replicas(self, handles, finite):
        old_rules = [handle.rule for handle in handles]
        for handle in handles:
            handle.rule = replace(handle.rule, min_scale=None, max_scale=None)
        super().update_replicas(handles, finite)
        for handle, rule in zip(handles, old_rules, strict=True):
            handle.rule = rule
        return handles


@breaks_compiled("planted: the compiled step on arrays is kept for ten rules, the last of which all further scalers use")
class CompilesTenRules(Loop):
    """Loop that compiles its steps on arrays for at most ten rules; further scalers have the constants of the last of them."""

    def step_on_arrays(self, handle, tree):
        self.rules = getattr(self, "rules", [])
        own = handle.rule
        if own not in self.rules:
            self.rules = [*self.rules, own][:10]
        handle.rule = own if own in self.rules else self.rules[-1]
        handle, unscaled = super().step_on_arrays(handle, tree)
        handle.rule = own
        return handle, unscaled


@breaks_compiled("planted: a compiled cell replaces missing gradients by zeros, and velocities move the parameters")
class TakesNoneForZero(MovesWithoutAGradient):
    pass


MUTANTS = tuple(_TABLE)
