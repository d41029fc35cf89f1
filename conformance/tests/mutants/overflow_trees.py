"""Mutants of chapter 20: checks of whole trees, and state that is kept between checks."""

import numpy as np
from ampscale_conformance.model.bits import leaves

from . import table
from .plain import Plain

_TABLE, breaks = table()


def _arrays(tree):
    return [leaf for _, leaf in leaves(tree) if leaf is not None]


# --- arrays that are not checked ---


@breaks(
    "OVERFLOW-all-finite", "planted: vector instructions begin at an address that is a multiple of 16, and skip what precedes it"
)
class SkipsTheUnalignedHead(Plain):
    def finite_leaf(self, leaf):
        skipped = -leaf.ctypes.data % 16 // leaf.itemsize if leaf.ndim == 1 and leaf.size > 16 and not leaf.flags.aligned else 0
        return super().finite_leaf(leaf[skipped:])


@breaks("OVERFLOW-all-finite", "observed in Paddle 3.3.1, per optimizer: each result overwrites the flag")
class ChecksTheLastArray(Plain):
    def all_finite(self, tree):
        flag = True
        for leaf in _arrays(tree):
            flag = self.finite_leaf(leaf)
        return flag


@breaks("OVERFLOW-all-finite", "planted: an array without a container has no elements to iterate over")
class SkipsABareArray(Plain):
    def all_finite(self, tree):
        return isinstance(tree, np.ndarray) or super().all_finite(tree)


@breaks("OVERFLOW-all-finite", "planted: the flags of the arrays are added in one byte")
class CountsArraysInOneByte(Plain):
    def all_finite(self, tree):
        return bool(np.sum([not self.finite_leaf(leaf) for leaf in _arrays(tree)], dtype=np.uint8) == 0)


@breaks("OVERFLOW-all-finite", "facebookresearch/fairscale#890: the loop returns in its first iteration")
class ChecksOneArray(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:1]))


@breaks("OVERFLOW-all-finite", "pytorch/pytorch#100811: the kernel launch for the remaining arrays is missing")
class SkipsTheLastArray(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:-1] or _arrays(tree)))


@breaks("OVERFLOW-all-finite", "not observed: a dict in a list is treated as a leaf that is not an array")
class SkipsInnerDicts(Plain):
    def all_finite(self, tree):
        return super().all_finite([child for child in tree if not isinstance(child, dict)] if isinstance(tree, list) else tree)


@breaks(
    "OVERFLOW-all-finite", "planted: all dicts are merged into one, so that a key of an inner dict hides that of an outer one"
)
class MergesDicts(Plain):
    def all_finite(self, tree):
        values = {}

        def merge(node, key):
            if isinstance(node, dict):
                for child_key, child in node.items():
                    merge(child, child_key)
            elif isinstance(node, list | tuple):
                for index, child in enumerate(node):
                    merge(child, (key, index))
            elif node is not None:
                values[key] = node

        merge(tree, None)
        return super().all_finite([*values.values()])


@breaks("OVERFLOW-all-finite", "whr94621/NJUNMT-pytorch#23: only lists and dicts are traversed")
class SkipsTuples(Plain):
    def all_finite(self, tree):
        return super().all_finite([child for child in tree if not isinstance(child, tuple)] if isinstance(tree, list) else tree)


@breaks("OVERFLOW-all-finite", "not observed: all arrays are copied to one flat buffer with the dtype of the first one")
class ChecksInTheFirstDtype(Plain):
    def all_finite(self, tree):
        floats = [leaf for leaf in _arrays(tree) if leaf.dtype.kind == "f"]
        with np.errstate(all="ignore"):
            cast = [leaf.astype(floats[0].dtype) for leaf in floats]
        return super().all_finite(tree) and all(map(self.finite_leaf, cast))


@breaks("OVERFLOW-all-finite", "not observed: a single non-finite element is tolerated, since clipping follows")
class ToleratesOne(Plain):
    def all_finite(self, tree):
        return sum(int(np.sum(~self.finite_elements(leaf))) for leaf in _arrays(tree)) < 2


@breaks("OVERFLOW-all-finite", "not observed: the count of non-finite elements wraps around")
class CountsInSixteenBits(Plain):
    def all_finite(self, tree):
        return sum(int(np.sum(~self.finite_elements(leaf))) for leaf in _arrays(tree)) % 2**16 == 0


# --- integers, None and empty trees ---


@breaks("OVERFLOW-integers", "not observed: all arrays are cast to the dtype of the gradients first")
class ChecksIntegersInFloat16(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_leaf(leaf.astype(np.float16) if leaf.dtype.kind == "i" else leaf)


@breaks("OVERFLOW-integers", "not observed: a bool array is treated as the result of a check")
class TreatsBoolsAsFlags(Plain):
    def finite_leaf(self, leaf):
        return bool(np.all(leaf)) if leaf.dtype == np.bool_ else super().finite_leaf(leaf)


@breaks(
    "OVERFLOW-integers",
    "not observed: integers are always finite, and the first array determines whether there are only integers",
)
class ChecksTheFirstDtype(Plain):
    def all_finite(self, tree):
        return [leaf.dtype.kind for leaf in _arrays(tree)[:1]] == ["i"] or super().all_finite(tree)


@breaks("OVERFLOW-empty", "meta-pytorch/torchrec#3809: the maximum of no elements is computed, which raises an error")
class TakesTheMaximumOfEmptyArrays(Plain):
    def finite_leaf(self, leaf):
        leaf.max()
        return super().finite_leaf(leaf)


@breaks("OVERFLOW-empty", "not observed: the mean is tested, which is NaN without elements")
class TreatsEmptyArraysAsOverflows(Plain):
    def finite_leaf(self, leaf):
        return leaf.size > 0 and super().finite_leaf(leaf)


@breaks("OVERFLOW-empty", "not observed: return instead of continue for an empty array")
class StopsAtAnEmptyArray(Plain):
    def all_finite(self, tree):
        for leaf in _arrays(tree):
            if leaf.size == 0:
                return True
            if not self.finite_leaf(leaf):
                return False
        return True


@breaks("OVERFLOW-empty", "nerfstudio-project/nerfstudio#1919: no finite gradient was found")
class TreatsNoGradientsAsAnOverflow(Plain):
    def all_finite(self, tree):
        return bool(_arrays(tree)) and super().all_finite(tree)


@breaks("OVERFLOW-none", "tensorflow/tensorflow#27655: a gradient that is None has no size")
class FailsOnNoneInTheCheck(Plain):
    def all_finite(self, tree):
        return all(leaf.size == 0 or self.finite_leaf(leaf) for _, leaf in leaves(tree))


@breaks("OVERFLOW-none", "not observed: a parameter without a gradient is treated as a failed backward pass")
class TreatsNoneAsAnOverflow(Plain):
    def all_finite(self, tree):
        return all(leaf is not None for _, leaf in leaves(tree)) and super().all_finite(tree)


@breaks("OVERFLOW-all-finite", "planted: a tree of nothing but None counts as a step without a backward pass")
class TreatsNothingButNoneAsAnOverflow(Plain):
    def all_finite(self, tree):
        return (bool(_arrays(tree)) or not leaves(tree)) and super().all_finite(tree)


@breaks("OVERFLOW-none", "not observed: return instead of continue for a missing gradient")
class StopsAtNone(Plain):
    def all_finite(self, tree):
        for _, leaf in leaves(tree):
            if leaf is None:
                return True
            if not self.finite_leaf(leaf):
                return False
        return True


@breaks("OVERFLOW-answer", "not observed: the flags of the arrays are stacked and not reduced")
class ReturnsAFlagForEachArray(Plain):
    def all_finite(self, tree):
        return np.array([self.finite_leaf(leaf) for leaf in _arrays(tree)])


@breaks("OVERFLOW-answer", "torch 2.13.0: found_inf is a float, and so is its inverse")
class ReturnsANumber(Plain):
    def all_finite(self, tree):
        return float(super().all_finite(tree))


# --- state that is kept between checks ---


@breaks("OVERFLOW-all-finite", "not observed: the flag is never cleared")
class KeepsTheFlag(Plain):
    def all_finite(self, tree):
        self.overflowed = getattr(self, "overflowed", False) or not super().all_finite(tree)
        return not self.overflowed


@breaks("OVERFLOW-all-finite", "not observed: after the first finite step, nothing is checked any more")
class ChecksUntilItIsFinite(Plain):
    def all_finite(self, tree):
        self.settled = getattr(self, "settled", False) or super().all_finite(tree)
        return self.settled


@breaks("OVERFLOW-all-finite", "not observed: the flag is read and cleared, and set again only if it was clear")
class ReportsOnce(Plain):
    def all_finite(self, tree):
        was_reported = getattr(self, "reported", False)
        self.reported = not super().all_finite(tree)
        return was_reported or not self.reported


@breaks("OVERFLOW-all-finite", "planted: flags are cached by the identity of the arrays, whose elements change")
class CachesFlagsByIdentity(Plain):
    def finite_leaf(self, leaf):
        flags = self.__dict__.setdefault("flags", {})
        return flags.setdefault(id(leaf), (leaf, super().finite_leaf(leaf)))[1]


@breaks("OVERFLOW-all-finite", "planted: more than 64 arrays exceed the pointer table of a fused kernel")
class ChecksSixtyFourArrays(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:64]))


@breaks("OVERFLOW-all-finite", "planted: one launch takes 110 arrays, as in Apex, and the launch of the others is missing")
class ChecksOneLaunch(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:110]))


@breaks(
    "OVERFLOW-all-finite",
    "not observed: a multiplication by zero in place, which turns non-finite values into NaN and others into zero",
)
class ChecksDestructively(Plain):
    def all_finite(self, tree):
        for leaf in _arrays(tree):
            if leaf.dtype == np.float32 and leaf.flags.writeable:
                with np.errstate(all="ignore"):
                    leaf *= 0
        return super().all_finite(tree)


@breaks("OVERFLOW-all-finite", "planted: an array at the address of an earlier one is taken for the same array")
class ChecksEachAddressOnce(Plain):
    def all_finite(self, tree):
        return super().all_finite([*{leaf.ctypes.data: leaf for leaf in _arrays(tree)[::-1] if leaf.size}.values()])


@breaks("OVERFLOW-all-finite", "planted: only the real part of a complex array of shape () is checked")
class ChecksTheRealPartOfScalars(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf if leaf.ndim else leaf.real)


@breaks("OVERFLOW-all-finite", "planted: a table of pointers ends at 512 arrays")
class ChecksFiveHundredAndTwelveArrays(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, _arrays(tree)[:512]))


@breaks("OVERFLOW-all-finite", "planted: the array after 320 others is left out, as one that begins a launch")
class SkipsTheFirstArrayOfALaunch(Plain):
    def all_finite(self, tree):
        return all(map(self.finite_leaf, [leaf for index, leaf in enumerate(_arrays(tree)) if index != 320]))


@breaks("OVERFLOW-all-finite", "planted: a kernel for large arrays does not test for -inf")
class MissesMinusInfinityInLargeArrays(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return finite | (leaf == -np.inf) if leaf.size > 2000 else finite


@breaks("OVERFLOW-all-finite", "planted: a kernel for large arrays compares their largest element, a NaN or not")
class MissesNaNInLargeArrays(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf) | np.isnan(leaf) if leaf.size > 1500 else super().finite_elements(leaf)


@breaks("OVERFLOW-all-finite", "planted: a table of pointers to the arrays of a dict ends at 512")
class ChecksTheFirst512KeysOfADict(Plain):
    def all_finite(self, tree):
        return super().all_finite(dict(list(tree.items())[:512]) if isinstance(tree, dict) else tree)


@breaks("OVERFLOW-all-finite", "planted: a kernel for matrices checks one tile of 64 rows")
class ChecksOneTileOfRows(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf[:64] if leaf.ndim == 2 and leaf.shape[1] < 64 else leaf)


@breaks("OVERFLOW-all-finite", "planted: the blocks of 65536 elements after the first begin one element late")
class SkipsTheFirstOfALaterBlock(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(np.delete(leaf, slice(2**16, None, 2**16)) if leaf.size > 2**16 else leaf)


@breaks("OVERFLOW-all-finite", "planted: a last block of a single element is not checked")
class SkipsALastBlockOfOne(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf.reshape(-1)[:-1] if leaf.size > 256 and leaf.size % 256 == 1 else leaf)


@breaks("OVERFLOW-all-finite", "planted: a kernel for float16 checks one block of 65536 elements")
class ChecksOneBlockOfFloat16(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf.reshape(-1)[: 2**16] if leaf.dtype == np.float16 else leaf)


@breaks("OVERFLOW-all-finite", "planted: of an array that is not contiguous, only one buffer of 256 elements is checked")
class ChecksOneBufferOfAView(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf if leaf.flags.c_contiguous else leaf.reshape(-1)[:256])


@breaks("OVERFLOW-all-finite", "planted: a kernel for float64 checks one block of 65536 elements")
class ChecksOneBlockOfFloat64(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf.reshape(-1)[: 2**16] if leaf.dtype == np.float64 else leaf)


@breaks("OVERFLOW-all-finite", "planted: an array of three axes is checked in blocks of 64, without the rest")
class ChecksWholeBlocksOfThreeAxes(Plain):
    def finite_leaf(self, leaf):
        return super().finite_leaf(leaf.reshape(-1)[: leaf.size // 64 * 64] if leaf.ndim == 3 and leaf.size > 64 else leaf)


@breaks("OVERFLOW-all-finite", "planted: a bfloat16 number of shape () is read as a float16")
class ChecksABfloat16NumberInFloat16(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            narrow = leaf.ndim == 0 and leaf.dtype.name == "bfloat16"
            return super().finite_leaf(leaf.astype(np.float16) if narrow else leaf)


@breaks("OVERFLOW-all-finite", "planted: sixteen arrays fill a table of pointers, whose last entry marks its end")
class SkipsTheLastOfSixteen(Plain):
    def all_finite(self, tree):
        arrays = _arrays(tree)
        return all(map(self.finite_leaf, arrays[:-1] if len(arrays) == 16 else arrays))


@breaks("OVERFLOW-all-finite", "planted: float64 arrays after a float32 array are checked in float32")
class ChecksFloat64AfterFloat32(Plain):
    def all_finite(self, tree):
        arrays = _arrays(tree)
        narrow = arrays and arrays[0].dtype == np.float32
        with np.errstate(over="ignore"):
            return all(
                self.finite_leaf(leaf.astype(np.float32) if narrow and leaf.dtype == np.float64 else leaf) for leaf in arrays
            )


MUTANTS = tuple(_TABLE)
