"""Chapter 20, overflow: a look at elements that is wrong in one way. What is wrong with whole trees is in `overflow_trees`."""

import numpy as np

from . import overflow_trees, table
from .plain import Plain

_TABLE, wrong = table()
INFINITY = np.uint32(0x7F800000)  # as the bits of a float32
BLOCK = 65_536


def _bits(leaf):
    return leaf.view(np.uint32)


# --- what counts as infinite or NaN ---


@wrong("OVERFLOW-all-finite", "not seen; the least element is compared with -65504, and the greatest with nothing")
class LooksForTheLeastInHalf(Plain):
    def finite_elements(self, leaf):
        return leaf >= -65504 if leaf.dtype == np.float16 else super().finite_elements(leaf)


@wrong("OVERFLOW-all-finite", "not seen; the greatest element is compared with 65504, and the least with nothing")
class LooksForTheGreatestInHalf(Plain):
    def finite_elements(self, leaf):
        return leaf <= 65504 if leaf.dtype == np.float16 else super().finite_elements(leaf)


@wrong("OVERFLOW-all-finite", "not seen; the least element is compared with -inf, and the greatest with nothing")
class LooksForTheLeast(Plain):
    def finite_elements(self, leaf):
        return np.not_equal(leaf, -np.inf) & ~np.isnan(leaf) if leaf.dtype == np.float32 else super().finite_elements(leaf)


@wrong("OVERFLOW-all-finite", "not seen; the greatest element is compared with inf, and the least with nothing")
class LooksForTheGreatest(Plain):
    def finite_elements(self, leaf):
        return np.not_equal(leaf, np.inf) & ~np.isnan(leaf) if leaf.dtype == np.float32 else super().finite_elements(leaf)


@wrong("OVERFLOW-all-finite", "a comparison is never true of NaN, nor is a reduction: arrayfire/arrayfire#860")
class LooksForInfinities(Plain):
    def finite_elements(self, leaf):
        return ~np.isinf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; what is above -inf, as unsigned bits, is NaN: but only one that has a sign")
class LooksForNansWithASign(Plain):
    def finite_leaf(self, leaf):
        return (
            bool(np.all(~np.isinf(leaf) & (_bits(leaf) <= (INFINITY | 1 << 31))))
            if leaf.dtype == np.float32
            else super().finite_leaf(leaf)
        )


@wrong("OVERFLOW-all-finite", "not seen; what is above inf, as signed bits, is NaN: but a sign makes it small")
class LooksForNansWithoutASign(Plain):
    def finite_leaf(self, leaf):
        return (
            bool(np.all(~np.isinf(leaf) & (leaf.view(np.int32) <= INFINITY)))
            if leaf.dtype == np.float32
            else super().finite_leaf(leaf)
        )


@wrong("OVERFLOW-all-finite", "not seen; the first bit of the fraction says that it is a NaN")
class LooksForQuietNans(Plain):
    def finite_leaf(self, leaf):
        return (
            bool(np.all(~np.isinf(leaf) & (_bits(leaf) & 0x7FC00000 != 0x7FC00000)))
            if leaf.dtype == np.float32
            else super().finite_leaf(leaf)
        )


@wrong("OVERFLOW-all-finite", "not seen; the exponent's mask is that of float32, for every dtype")
class LooksAtHalfAsAtSingle(Plain):
    def finite_leaf(self, leaf):
        return leaf.dtype == np.float16 or super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; the exponent is full and the fraction zero, as in the infinity that an overflow makes")
class LooksForInfinitiesInHalf(Plain):
    def finite_leaf(self, leaf):
        return not np.any(leaf.view(np.uint16) & 0x7FFF == 0x7C00) if leaf.dtype == np.float16 else super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; the kernel has branches for half and single, and no other")
class KnowsNoDouble(Plain):
    def finite_leaf(self, leaf):
        return leaf.dtype == np.float64 or super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; a comparison with the largest number, for the dtype that is rarely met")
class LooksForInfinitiesInDouble(Plain):
    def finite_leaf(self, leaf):
        return not np.any(abs(leaf) == np.inf) if leaf.dtype == np.float64 else super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; x != x, for the dtype that overflows never")
class LooksForNansInDouble(Plain):
    def finite_leaf(self, leaf):
        return not np.any(np.isnan(leaf)) if leaf.dtype == np.float64 else super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "numpy.issubdtype(bfloat16, floating) is False: jax-ml/jax#9179")
class KnowsNoBfloat16(Plain):
    def finite_leaf(self, leaf):
        return leaf.dtype.name == "bfloat16" or super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "a NaN whose payload is cut off is infinite; the others are not looked for: groonga/groonga#2961")
class LooksForInfinitiesInBfloat16(Plain):
    def finite_leaf(self, leaf):
        return not np.any(leaf.view(np.uint16) & 0x7FFF == 0x7F80) if leaf.dtype.name == "bfloat16" else super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; bfloat16 has the range of float32 and overflows never, so that NaN alone is looked for")
class LooksForNansInBfloat16(Plain):
    def finite_leaf(self, leaf):
        return not np.any(np.isnan(leaf.astype(np.float32))) if leaf.dtype.name == "bfloat16" else super().finite_leaf(leaf)


@wrong("OVERFLOW-edges", "isnormal where isfinite is meant: deephaven/deephaven-core#2728, tgockel/json-voorhees#25")
class LooksAtNormalNumbers(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return (leaf == 0) | (finite & (abs(leaf) >= np.finfo(leaf.dtype).tiny)) if leaf.dtype.kind == "f" else finite


@wrong("OVERFLOW-all-finite", "not seen; x / x is 1 for every number but one")
class DividesByItself(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(leaf / leaf if leaf.dtype.kind == "f" else leaf)


@wrong("OVERFLOW-edges", "not seen; the limit is asked for with >= where > is meant")
class TakesTheLargestHalfForInfinite(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return finite & (abs(leaf) != 65504) if leaf.dtype == np.float16 else finite


@wrong("OVERFLOW-edges", "not seen; 3.4e38 is written for the largest float32")
class HasARoundLimit(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return finite & (abs(leaf) < 3.4e38) if leaf.dtype == np.float32 else finite


@wrong("OVERFLOW-edges", "not seen; everything is cast to float32 first")
class LooksAtDoubleInSingle(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf)


@wrong("OVERFLOW-edges", "not seen; 16 bits are 16 bits: bfloat16 is cast to float16")
class LooksAtBfloat16InHalf(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(leaf.astype(np.float16) if leaf.dtype.name == "bfloat16" else leaf)


# --- something is computed of the elements, and looked at in their place ---


@wrong("OVERFLOW-elementwise", "the sum is finite where all are; it is taken in half: scikit-learn/scikit-learn#23347")
class SumsInHalf(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.sum(leaf, dtype=np.float16))) if leaf.dtype == np.float16 else super().finite_leaf(leaf)


@wrong("OVERFLOW-elementwise", "the sum is finite where all are: k2-fsa/icefall#1852, scikit-learn/scikit-learn#352")
class SumsInSingle(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.sum(leaf, dtype=np.float32))) if leaf.dtype == np.float32 else super().finite_leaf(leaf)


@wrong("OVERFLOW-elementwise", "the norm is computed anyway, for clipping: pytorch/pytorch#46849")
class TakesTheNorm(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return (
                bool(np.isfinite(np.sum(leaf * leaf, dtype=np.float32)))
                if leaf.dtype == np.float32
                else super().finite_leaf(leaf)
            )


@wrong("OVERFLOW-elementwise", "not seen; the range is computed anyway, for a histogram")
class TakesTheRange(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return (
                bool(leaf.size == 0 or np.isfinite(leaf.max() - leaf.min()))
                if leaf.dtype == np.float32
                else super().finite_leaf(leaf)
            )


@wrong("OVERFLOW-elementwise", "not seen; an infinite sum, and no look whether it is NaN")
class CancelsInfinities(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return (
                bool(not np.isinf(np.sum(leaf, dtype=np.float64)) and not np.any(np.isnan(leaf)))
                if leaf.dtype == np.float32
                else super().finite_leaf(leaf)
            )


@wrong("OVERFLOW-complex", "the magnitude of a complex number is looked at: pytorch/pytorch#66402, pytorch/pytorch#76606")
class TakesTheMagnitude(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(abs(leaf))


@wrong("OVERFLOW-complex", "not seen; the imaginary part is dropped")
class LooksAtRealParts(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.real)


@wrong("OVERFLOW-complex", "not seen; the second half of each pair is read for both")
class LooksAtImaginaryParts(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.imag if leaf.dtype.kind == "c" else leaf)


# --- which elements ---


@wrong("OVERFLOW-all-finite", "not seen; a loop that begins with 1")
class BeginsWithTheSecond(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[1:] if leaf.ndim else leaf)


@wrong("OVERFLOW-all-finite", "a loop that ends one too early: xlite-dev/LeetCUDA#421")
class EndsBeforeTheLast(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[:-1] if leaf.ndim else leaf)


@wrong("OVERFLOW-all-finite", "not seen; a sample, to save time")
class LooksAtBothEnds(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[[0, -1]] if leaf.size else leaf)


@wrong("OVERFLOW-all-finite", "not seen; each block of a thousand ends one too early")
class LeavesOutTheEndsOfBlocks(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[np.arange(leaf.size) % 1024 != 1023])


@wrong("OVERFLOW-all-finite", "the rest after the last full block: stew675/llama-cpp-rdna-boosts#19, amd/IRON#198")
class LooksAtFullBlocks(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[: leaf.size - leaf.size % BLOCK] if leaf.size > BLOCK else leaf)


@wrong("OVERFLOW-all-finite", "not seen; an array of shape () has no first axis to go along")
class LooksAtNoScalars(Plain):
    def finite_leaf(self, leaf):
        return leaf.ndim == 0 or super().finite_leaf(leaf)


@wrong("OVERFLOW-all-finite", "not seen; one thread for each column, and no loop over the rows")
class LooksAtTheFirstRow(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[0] if leaf.ndim > 1 and leaf.size else leaf)


@wrong("OVERFLOW-all-finite", "not seen; reduced along one axis, and the first of the answers is taken")
class LooksAtTheFirstColumn(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[:, 0] if leaf.ndim > 1 else leaf)


MUTANTS = (*_TABLE, *overflow_trees.MUTANTS)
