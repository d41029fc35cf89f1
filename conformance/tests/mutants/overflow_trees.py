"""Chapter 20, overflow: what is wrong with whole trees, and with what is kept from one look to the next."""

import numpy as np
from ampscale_conformance.model.bits import leaves

from . import table
from .plain import Plain

_TABLE, wrong = table()


def _arrays(tree):
    return [leaf for _, leaf in leaves(tree) if leaf is not None]


# --- which arrays ---


@wrong("OVERFLOW-all-finite", "each one's answer overwrites the flag: observed in Paddle 3.3.1, optimizer by optimizer")
class LastArrayWins(Plain):
    def all_finite(self, tree):
        flag = True
        for leaf in _arrays(tree):
            flag = self.finite_leaf(leaf)
        return flag


@wrong("OVERFLOW-all-finite", "the loop returns in its first round: facebookresearch/fairscale#890")
class LooksAtTheFirstArray(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:1]))


@wrong("OVERFLOW-all-finite", "the launch for what is left in the lists is forgotten: pytorch/pytorch#100811")
class LeavesOutTheLastArray(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:-1] or _arrays(tree)))


@wrong("OVERFLOW-all-finite", "not seen; a dict in a list is taken for a leaf, and for no array")
class LooksIntoNoInnerDicts(Plain):
    def all_finite(self, tree):
        return super().all_finite([child for child in tree if not isinstance(child, dict)] if isinstance(tree, list) else tree)


@wrong("OVERFLOW-all-finite", "only lists and dicts are gone into: whr94621/NJUNMT-pytorch#23")
class LooksIntoNoTuples(Plain):
    def all_finite(self, tree):
        return super().all_finite([child for child in tree if not isinstance(child, tuple)] if isinstance(tree, list) else tree)


@wrong("OVERFLOW-all-finite", "not seen; all are laid into one flat buffer, which has the dtype of the first")
class LooksInTheFirstDtype(Plain):
    def all_finite(self, tree):
        floats = [leaf for leaf in _arrays(tree) if leaf.dtype.kind == "f"]
        with np.errstate(all="ignore"):
            cast = [leaf.astype(floats[0].dtype) for leaf in floats]
        return super().all_finite(tree) and all(map(self.finite_leaf, cast))


@wrong("OVERFLOW-all-finite", "not seen; a single one is a hiccup, and clipping will deal with it")
class PutsUpWithOne(Plain):
    def all_finite(self, tree):
        return sum(int(np.sum(~self.finite_elements(leaf))) for leaf in _arrays(tree)) < 2


@wrong("OVERFLOW-all-finite", "not seen; what is not finite is counted, in too few bits")
class CountsInSixteenBits(Plain):
    def all_finite(self, tree):
        return sum(int(np.sum(~self.finite_elements(leaf))) for leaf in _arrays(tree)) % 2**16 == 0


# --- integers, None and nothing ---


@wrong("OVERFLOW-integers", "not seen; everything is cast to the dtype of the gradients first")
class LooksAtIntegersInHalf(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_leaf(leaf.astype(np.float16) if leaf.dtype.kind == "i" else leaf)


@wrong("OVERFLOW-integers", "not seen; what is bool already is taken for the result of a look")
class TakesBoolsForAnswers(Plain):
    def finite_leaf(self, leaf):
        return bool(np.all(leaf)) if leaf.dtype == np.bool_ else super().finite_leaf(leaf)


@wrong("OVERFLOW-integers", "not seen; integers are always finite, and the first array says whether they are integers")
class GoesByTheFirstDtype(Plain):
    def all_finite(self, tree):
        return [leaf.dtype.kind for leaf in _arrays(tree)[:1]] == ["i"] or super().all_finite(tree)


@wrong("OVERFLOW-empty", "the largest element of none: meta-pytorch/torchrec#3809")
class AsksEmptyArraysForTheirLargest(Plain):
    def finite_leaf(self, leaf):
        leaf.max()
        return super().finite_leaf(leaf)


@wrong("OVERFLOW-empty", "not seen; the mean is looked at, which is NaN of no elements")
class TakesEmptyArraysForOverflows(Plain):
    def finite_leaf(self, leaf):
        return leaf.size > 0 and super().finite_leaf(leaf)


@wrong("OVERFLOW-empty", "not seen; no elements, nothing to do: return in place of continue")
class EndsAtAnEmptyArray(Plain):
    def all_finite(self, tree):
        for leaf in _arrays(tree):
            if leaf.size == 0:
                return True
            if not self.finite_leaf(leaf):
                return False
        return True


@wrong("OVERFLOW-empty", "nothing was found to be finite: nerfstudio-project/nerfstudio#1919")
class TakesNoGradientsForAnOverflow(Plain):
    def all_finite(self, tree):
        return bool(_arrays(tree)) and super().all_finite(tree)


@wrong("OVERFLOW-none", "a gradient that is None has no size: tensorflow/tensorflow#27655")
class StumblesOverNone(Plain):
    def all_finite(self, tree):
        return all(leaf.size == 0 or self.finite_leaf(leaf) for _, leaf in leaves(tree))


@wrong("OVERFLOW-none", "not seen; a parameter without a gradient is taken for a backward pass that went wrong")
class TakesNoneForAnOverflow(Plain):
    def all_finite(self, tree):
        return all(leaf is not None for _, leaf in leaves(tree)) and super().all_finite(tree)


@wrong("OVERFLOW-none", "not seen; no gradient, nothing to do: return in place of continue")
class EndsAtNone(Plain):
    def all_finite(self, tree):
        for _, leaf in leaves(tree):
            if leaf is None:
                return True
            if not self.finite_leaf(leaf):
                return False
        return True


@wrong("OVERFLOW-answer", "not seen; flags are stacked and not reduced: an array of them comes back")
class AnswersForEachArray(Plain):
    def all_finite(self, tree):
        return np.array([self.finite_leaf(leaf) for leaf in _arrays(tree)])


@wrong("OVERFLOW-answer", "found_inf is a float, as torch 2.13.0 has it, and so is its opposite")
class AnswersWithANumber(Plain):
    def all_finite(self, tree):
        return float(super().all_finite(tree))


# --- from one look to the next ---


@wrong("OVERFLOW-all-finite", "not seen; a flag that nobody clears")
class NeverForgets(Plain):
    def all_finite(self, tree):
        self.overflowed = getattr(self, "overflowed", False) or not super().all_finite(tree)
        return not self.overflowed


@wrong("OVERFLOW-all-finite", "not seen; a check for the first steps, which ends with the first finite one")
class LooksUntilItIsFinite(Plain):
    def all_finite(self, tree):
        self.settled = getattr(self, "settled", False) or super().all_finite(tree)
        return self.settled


@wrong("OVERFLOW-all-finite", "not seen; the flag is read and cleared, and set again only where it was clear")
class TellsOnce(Plain):
    def all_finite(self, tree):
        before, self.told = getattr(self, "told", False), not super().all_finite(tree)
        return before or not self.told


@wrong("OVERFLOW-all-finite", "not seen; times zero in place, so that only NaN is left of what is not finite")
class LooksDestructively(Plain):
    def all_finite(self, tree):
        for leaf in _arrays(tree):
            if leaf.dtype == np.float32:
                with np.errstate(all="ignore"):
                    leaf *= 0
        return super().all_finite(tree)


MUTANTS = tuple(_TABLE)
