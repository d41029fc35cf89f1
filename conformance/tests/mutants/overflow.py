"""Mutants of chapter 20: checks of elements. Mutants that concern whole trees are in `overflow_trees`."""

import numpy as np

from . import overflow_trees, table
from .plain import Plain

_TABLE, breaks = table()
INFINITY = np.uint32(0x7F800000)  # as the bits of a float32
BLOCK = 65_536


def _bits(leaf):
    return leaf.view(np.uint32)


# --- tests for infinity and NaN ---


@breaks("OVERFLOW-all-finite", "not observed: only the minimum is compared, with -65504")
class ChecksTheMinimumInFloat16(Plain):
    def finite_elements(self, leaf):
        return leaf >= -65504 if leaf.dtype == np.float16 else super().finite_elements(leaf)


@breaks("OVERFLOW-all-finite", "not observed: only the maximum is compared, with 65504")
class ChecksTheMaximumInFloat16(Plain):
    def finite_elements(self, leaf):
        return leaf <= 65504 if leaf.dtype == np.float16 else super().finite_elements(leaf)


@breaks("OVERFLOW-all-finite", "not observed: only the minimum is compared, with -inf")
class ChecksTheMinimum(Plain):
    def finite_elements(self, leaf):
        return np.not_equal(leaf, -np.inf) & ~np.isnan(leaf) if leaf.dtype == np.float32 else super().finite_elements(leaf)


@breaks("OVERFLOW-all-finite", "not observed: only the maximum is compared, with inf")
class ChecksTheMaximum(Plain):
    def finite_elements(self, leaf):
        return np.not_equal(leaf, np.inf) & ~np.isnan(leaf) if leaf.dtype == np.float32 else super().finite_elements(leaf)


@breaks("OVERFLOW-all-finite", "arrayfire/arrayfire#860: comparisons and reductions ignore NaN")
class ChecksForInfinities(Plain):
    def finite_elements(self, leaf):
        return ~np.isinf(leaf)


@breaks(
    "OVERFLOW-all-finite",
    "not observed: bits are compared as unsigned integers with those of -inf, above which only negative NaNs are",
)
class ChecksForNegativeNans(Plain):
    def finite_leaf(self, leaf):
        if leaf.dtype != np.float32:
            return super().finite_leaf(leaf)
        return bool(np.all(~np.isinf(leaf) & (_bits(leaf) <= (INFINITY | 1 << 31))))


@breaks(
    "OVERFLOW-all-finite",
    "not observed: bits are compared as signed integers with those of inf, above which only positive NaNs are",
)
class ChecksForPositiveNans(Plain):
    def finite_leaf(self, leaf):
        if leaf.dtype != np.float32:
            return super().finite_leaf(leaf)
        return bool(np.all(~np.isinf(leaf) & (leaf.view(np.int32) <= INFINITY)))


@breaks("OVERFLOW-all-finite", "not observed: only the first bit of the fraction is tested for a NaN")
class ChecksForQuietNans(Plain):
    def finite_leaf(self, leaf):
        if leaf.dtype != np.float32:
            return super().finite_leaf(leaf)
        return bool(np.all(~np.isinf(leaf) & (_bits(leaf) & 0x7FC00000 != 0x7FC00000)))


@breaks("OVERFLOW-all-finite", "not observed: the exponent mask of float32 is used for every dtype")
class ChecksFloat16AsFloat32(Plain):
    def finite_leaf(self, leaf):
        return leaf.dtype == np.float16 or super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: only the bit pattern of infinity, which an overflow produces, is tested")
class ChecksForInfinitiesInFloat16(Plain):
    def finite_leaf(self, leaf):
        return not np.any(leaf.view(np.uint16) & 0x7FFF == 0x7C00) if leaf.dtype == np.float16 else super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: the kernel has branches for float16 and float32 only")
class IgnoresFloat64(Plain):
    def finite_leaf(self, leaf):
        return leaf.dtype == np.float64 or super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: float64, which is rarely used, is compared with infinity only")
class ChecksForInfinitiesInFloat64(Plain):
    def finite_leaf(self, leaf):
        return not np.any(abs(leaf) == np.inf) if leaf.dtype == np.float64 else super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: float64, which does not overflow in practice, is tested by x != x")
class ChecksForNansInFloat64(Plain):
    def finite_leaf(self, leaf):
        return not np.any(np.isnan(leaf)) if leaf.dtype == np.float64 else super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "jax-ml/jax#9179: numpy.issubdtype(bfloat16, floating) is False")
class IgnoresBfloat16(Plain):
    def finite_leaf(self, leaf):
        return leaf.dtype.name == "bfloat16" or super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "groonga/groonga#2961: a NaN whose payload is truncated is infinite; other NaNs are not tested")
class ChecksForInfinitiesInBfloat16(Plain):
    def finite_leaf(self, leaf):
        return not np.any(leaf.view(np.uint16) & 0x7FFF == 0x7F80) if leaf.dtype.name == "bfloat16" else super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: bfloat16 has the range of float32 and rarely overflows, so that only NaN is tested")
class ChecksForNansInBfloat16(Plain):
    def finite_leaf(self, leaf):
        return not np.any(np.isnan(leaf.astype(np.float32))) if leaf.dtype.name == "bfloat16" else super().finite_leaf(leaf)


@breaks("OVERFLOW-edges", "deephaven/deephaven-core#2728, tgockel/json-voorhees#25: isnormal instead of isfinite")
class AcceptsOnlyNormalNumbers(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return (leaf == 0) | (finite & (abs(leaf) >= np.finfo(leaf.dtype).tiny)) if leaf.dtype.kind == "f" else finite


@breaks("OVERFLOW-all-finite", "not observed: x / x is 1 for every number except 0")
class DividesByItself(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(leaf / leaf if leaf.dtype.kind == "f" else leaf)


@breaks("OVERFLOW-edges", "not observed: the comparison uses >= instead of >")
class RejectsTheLargestFloat16(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return finite & (abs(leaf) != 65504) if leaf.dtype == np.float16 else finite


@breaks("OVERFLOW-edges", "not observed: the largest float32 is written as 3.4e38")
class RoundsTheLargestFloat32(Plain):
    def finite_elements(self, leaf):
        finite = super().finite_elements(leaf)
        return finite & (abs(leaf) < 3.4e38) if leaf.dtype == np.float32 else finite


@breaks("OVERFLOW-edges", "not observed: all arrays are cast to float32 first")
class ChecksFloat64InFloat32(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf)


@breaks("OVERFLOW-edges", "not observed: bfloat16 is cast to float16")
class ChecksBfloat16InFloat16(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(leaf.astype(np.float16) if leaf.dtype.name == "bfloat16" else leaf)


# --- tests of a value that is computed from the elements ---


@breaks("OVERFLOW-elementwise", "scikit-learn/scikit-learn#23347: the finiteness of a sum is tested, computed in float16")
class SumsInFloat16(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.sum(leaf, dtype=np.float16))) if leaf.dtype == np.float16 else super().finite_leaf(leaf)


@breaks("OVERFLOW-elementwise", "k2-fsa/icefall#1852, scikit-learn/scikit-learn#352: the finiteness of a sum is tested")
class SumsInFloat32(Plain):
    def finite_leaf(self, leaf):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.sum(leaf, dtype=np.float32))) if leaf.dtype == np.float32 else super().finite_leaf(leaf)


@breaks("OVERFLOW-elementwise", "pytorch/pytorch#46849: the norm is tested, which clipping computes anyway")
class ChecksTheNorm(Plain):
    def finite_leaf(self, leaf):
        if leaf.dtype != np.float32:
            return super().finite_leaf(leaf)
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.sum(leaf * leaf, dtype=np.float32)))


@breaks("OVERFLOW-elementwise", "not observed: the range is tested, which a histogram computes anyway")
class ChecksTheRange(Plain):
    def finite_leaf(self, leaf):
        if leaf.dtype != np.float32:
            return super().finite_leaf(leaf)
        with np.errstate(all="ignore"):
            return bool(leaf.size == 0 or np.isfinite(leaf.max() - leaf.min()))


@breaks("OVERFLOW-elementwise", "not observed: the sum is tested for infinity and not for NaN")
class CancelsInfinities(Plain):
    def finite_leaf(self, leaf):
        if leaf.dtype != np.float32:
            return super().finite_leaf(leaf)
        with np.errstate(all="ignore"):
            return bool(not np.isinf(np.sum(leaf, dtype=np.float64)) and not np.any(np.isnan(leaf)))


@breaks("OVERFLOW-complex", "pytorch/pytorch#66402, pytorch/pytorch#76606: the magnitude of a complex number is tested")
class ChecksTheMagnitude(Plain):
    def finite_elements(self, leaf):
        with np.errstate(all="ignore"):
            return super().finite_elements(abs(leaf))


@breaks("OVERFLOW-complex", "not observed: the imaginary part is dropped")
class ChecksRealParts(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.real)


@breaks("OVERFLOW-complex", "not observed: the second component of each pair is read twice")
class ChecksImaginaryParts(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.imag if leaf.dtype.kind == "c" else leaf)


# --- elements that are not checked ---


@breaks("OVERFLOW-all-finite", "not observed: a loop that starts at 1")
class SkipsTheFirstElement(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[1:] if leaf.ndim else leaf)


@breaks("OVERFLOW-all-finite", "xlite-dev/LeetCUDA#421: a loop that ends one element too early")
class SkipsTheLastElement(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[:-1] if leaf.ndim else leaf)


@breaks("OVERFLOW-all-finite", "not observed: only a sample is tested, to save time")
class ChecksBothEnds(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[[0, -1]] if leaf.size else leaf)


@breaks("OVERFLOW-all-finite", "not observed: each block of 1024 elements ends one element too early")
class SkipsTheEndsOfBlocks(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[np.arange(leaf.size) % 1024 != 1023])


@breaks(
    "OVERFLOW-all-finite", "stew675/llama-cpp-rdna-boosts#19, amd/IRON#198: the elements after the last full block are omitted"
)
class ChecksFullBlocks(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[: leaf.size - leaf.size % BLOCK] if leaf.size > BLOCK else leaf)


@breaks("OVERFLOW-all-finite", "planted: a sample of every eighth element of large arrays is tested")
class ChecksASample(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf.reshape(-1)[::8] if leaf.size > 64 else leaf)


@breaks("OVERFLOW-all-finite", "planted: the memory of an array is tested without its strides")
class ChecksTheWholeMemory(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf if leaf.base is None or leaf.base.ndim != leaf.ndim else leaf.base)


@breaks("OVERFLOW-all-finite", "planted: read-only arrays are taken for constants, which are not checked")
class SkipsReadOnlyArrays(Plain):
    def finite_leaf(self, leaf):
        return not leaf.flags.writeable or super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: an array of shape () has no first axis to iterate over")
class SkipsScalars(Plain):
    def finite_leaf(self, leaf):
        return leaf.ndim == 0 or super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "not observed: one thread per column, and no loop over the rows")
class ChecksTheFirstRow(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[0] if leaf.ndim > 1 and leaf.size else leaf)


@breaks("OVERFLOW-all-finite", "not observed: a reduction along one axis, of which only the first result is used")
class ChecksTheFirstColumn(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[:, 0] if leaf.ndim > 1 else leaf)


@breaks("OVERFLOW-all-finite", "planted: one thread per row, and no loop over more than sixteen rows")
class ChecksSixteenRows(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[:16] if leaf.ndim > 1 else leaf)


@breaks("OVERFLOW-all-finite", "planted: strides are passed for four axes, so that only the first index of a fifth axis is read")
class ChecksFourAxes(Plain):
    def finite_elements(self, leaf):
        return super().finite_elements(leaf[0] if leaf.ndim > 4 else leaf)


@breaks("OVERFLOW-all-finite", "planted: the least int32 stands for a missing value")
class TreatsTheLeastIntegerAsMissing(Plain):
    def finite_leaf(self, leaf):
        return not (leaf.dtype == np.int32 and (leaf == np.iinfo(np.int32).min).any()) and super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "planted: the least int64 stands for a time that is missing")
class TreatsTheLeastInt64AsMissing(Plain):
    def finite_leaf(self, leaf):
        return not (leaf.dtype == np.int64 and (leaf == np.iinfo(np.int64).min).any()) and super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "planted: the kernel for float16 omits the elements after the last vector of eight")
class OmitsTheLastFloat16Elements(Plain):
    def finite_elements(self, leaf):
        whole = leaf.dtype != np.float16 or leaf.size < 8
        return super().finite_elements(leaf if whole else leaf.reshape(-1)[: leaf.size // 8 * 8])


@breaks("OVERFLOW-all-finite", "planted: the kernel for float16 takes contiguous arrays only")
class SkipsFloat16WithStrides(Plain):
    def finite_leaf(self, leaf):
        return (leaf.dtype == np.float16 and not leaf.flags.c_contiguous) or super().finite_leaf(leaf)


@breaks("OVERFLOW-all-finite", "planted: vector instructions add two numbers of large arrays, and test their sum")
class AddsPairsInLargeArrays(Plain):
    def finite_elements(self, leaf):
        if leaf.size < 100 or leaf.dtype != np.float32:
            return super().finite_elements(leaf)
        with np.errstate(all="ignore"):
            return np.isfinite(np.add.reduceat(leaf.reshape(-1), range(0, leaf.size, 2)))


@breaks("OVERFLOW-all-finite", "planted: large float16 arrays are summed in float32, and the sum is rounded to float16")
class SumsLargeFloat16Arrays(Plain):
    def finite_elements(self, leaf):
        if leaf.size < 4096 or leaf.dtype != np.float16:
            return super().finite_elements(leaf)
        with np.errstate(all="ignore"):
            return np.isfinite(leaf.sum(dtype=np.float32).astype(np.float16))


MUTANTS = (*_TABLE, *overflow_trees.MUTANTS)
