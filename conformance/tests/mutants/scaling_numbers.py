"""Mutants of chapter 10 with wrong numbers."""

import math

import numpy as np
from ampscale_conformance.model.bits import arrays, map_tree

from . import table
from .plain import Plain

_TABLE, breaks = table()
SMALLEST, SMALLEST_NORMAL = 2.0**-24, 2.0**-14  # of float16


# --- rounding modes that other mutants use ---


class _TowardZero(Plain):
    def narrowed(self, result, dtype):
        narrow = super().narrowed(result, dtype)
        too_far = np.isfinite(narrow) & (abs(narrow.astype(np.float32)) > abs(result))
        return np.where(too_far, np.nextafter(narrow, dtype.type(0)), narrow) if dtype == np.float16 else narrow


class _CutOff(Plain):
    def narrowed(self, result, dtype):
        if dtype.name != "bfloat16":
            return super().narrowed(result, dtype)
        return (result.view(np.uint32) >> 16).astype(np.uint16).view(dtype)


class _WithoutSubnormals(Plain):
    def widened(self, part):
        small = (abs(part) < SMALLEST_NORMAL) & (part.dtype == np.float16)
        return super().widened(np.where(small, np.copysign(part.dtype.type(0), part), part) if np.any(small) else part)


# --- mutants ---


@breaks("SCALING-round-once", "not observed: the product is computed in a region that casts to float16")
class ScalesFloat32InFloat16(Plain):
    def product(self, part, scale):
        return super().product(part.astype(np.float16).astype(np.float32) if part.dtype == np.float32 else part, scale)


@breaks("SCALING-round-once", "not observed: the scale is a float32, and so is the product")
class ScalesFloat64InFloat32(Plain):
    def product(self, part, scale):
        return super().product(part.astype(np.float32), scale)


@breaks("SCALING-round-once", "not observed: a custom conversion to float16 truncates")
class ScalesWithTruncation(Plain):
    def scaled_leaf(self, leaf, scale):
        return _TowardZero().scaled_leaf(leaf, scale)


@breaks("SCALING-round-once", "tenstorrent/tt-metal#19882, groonga/groonga#2961: conversion to bfloat16 truncates a float32")
class TruncatesBfloat16Gradients(Plain):
    def unscaled_leaf(self, leaf, scale):
        return _CutOff().unscaled_leaf(leaf, scale)


@breaks("SCALING-round-once", "tenstorrent/tt-metal#19882, groonga/groonga#2961: conversion to bfloat16 truncates a float32")
class TruncatesBfloat16Losses(Plain):
    def scaled_leaf(self, leaf, scale):
        return _CutOff().scaled_leaf(leaf, scale)


@breaks("SCALING-round-once", "not observed: the processor is in a mode in which it reads subnormals as zero")
class ScalesSubnormalsAsZero(Plain):
    def scaled_leaf(self, leaf, scale):
        return _WithoutSubnormals().scaled_leaf(leaf, scale)


@breaks("SCALING-round-once", "tinygrad/tinygrad#17087: a cast to float16 saturates instead of overflowing")
class SaturatesFloat16(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        overflowed = np.isfinite(leaf) & np.isinf(result)
        return np.where(overflowed, np.copysign(leaf.dtype.type(65504), result), result) if leaf.dtype == np.float16 else result


@breaks("SCALING-round-once", "observed in torch 2.15.0, NumPy 2.4.6 and JAX 0.10.2: a float16 times a float is a float16")
class WidensAfterScaling(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        return result.astype(np.float32) if leaf.dtype == np.float16 else result


@breaks(
    "SCALING-scale-float32",
    "Azure/MS-AMP#47, pytorch/pytorch#98691, google-deepmind/jmp#47: the scale is cast to the dtype of the array",
)
class ScalesByAFloat16(Plain):
    def scaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            return np.asarray(leaf * np.float16(scale)) if leaf.dtype == np.float16 else super().scaled_leaf(leaf, scale)


@breaks("SCALING-round-once", "not observed: gradients are copied to a float16 buffer")
class UnscalesFloat32InFloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        buffer = leaf.astype(np.float16).astype(leaf.dtype) if leaf.dtype == np.float32 else leaf
        return super().unscaled_leaf(buffer, scale)


@breaks("SCALING-round-once", "not observed: gradients are copied to a float32 buffer")
class UnscalesFloat64FromFloat32(Plain):
    def unscaled_leaf(self, leaf, scale):
        buffer = leaf.astype(np.float32).astype(leaf.dtype) if leaf.dtype == np.float64 else leaf
        return super().unscaled_leaf(buffer, scale)


@breaks("SCALING-round-once", "not observed: one bfloat16 buffer for all 16-bit gradients")
class UnscalesFloat16InBfloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16:
            return super().unscaled_leaf(leaf, scale)
        truncated = leaf.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return super().unscaled_leaf(truncated.view(np.float32), scale).astype(np.float16)


@breaks("SCALING-round-once", "not observed: one float16 buffer for all 16-bit gradients")
class UnscalesBfloat16InFloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            buffer = leaf.astype(np.float16) if leaf.dtype.name == "bfloat16" else leaf
        return super().unscaled_leaf(buffer, scale).astype(leaf.dtype)


@breaks("SCALING-round-once", "not observed: a custom conversion to float16 shifts into subnormals and truncates")
class UnscalesWithTruncation(Plain):
    def unscaled_leaf(self, leaf, scale):
        return _TowardZero().unscaled_leaf(leaf, scale)


@breaks("SCALING-round-once", "invergent-ai/surogate#162: a custom conversion to float16 adds a half before it shifts")
class RoundsUnderflowsUp(Plain):
    def narrowed(self, result, dtype):
        if dtype != np.float16:
            return super().narrowed(result, dtype)
        steps = np.floor(abs(result / np.float32(SMALLEST)) + np.float32(0.5))
        subnormal = np.copysign(steps * np.float32(SMALLEST), result)
        return super().narrowed(np.where(steps < 1024, subnormal, result), dtype)


@breaks("SCALING-round-once", "invergent-ai/surogate#162: subnormals are written as zero")
class FlushesUnderflows(Plain):
    def narrowed(self, result, dtype):
        small = (abs(result) < SMALLEST_NORMAL) & (dtype == np.float16)
        return super().narrowed(np.where(small, np.copysign(result.dtype.type(0), result), result), dtype)


@breaks("SCALING-round-once", "not observed: the processor is in a mode in which it reads subnormals as zero")
class UnscalesSubnormalsAsZero(Plain):
    def unscaled_leaf(self, leaf, scale):
        return _WithoutSubnormals().unscaled_leaf(leaf, scale)


@breaks("SCALING-widen", "not observed: master gradients are copied from gradients that were unscaled in float16")
class WidensAfterUnscaling(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        return result.astype(np.float32) if leaf.dtype == np.float16 else result


@breaks("SCALING-widen", "not observed: a float32 result is zero if the float16 result underflows")
class WidensWithoutUnderflows(Plain):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16:
            return super().unscaled_leaf(leaf, scale)
        lost = super().unscaled_leaf(leaf, scale) == 0
        return np.where(lost, np.float32(0), super().unscaled_leaf(leaf.astype(np.float32), scale))


@breaks("SCALING-scale-float32", "Azure/MS-AMP#47, pytorch/pytorch#98691: the scale is cast to the dtype of the array")
class DividesByAFloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            return np.asarray(leaf / np.float16(scale)) if leaf.dtype == np.float16 else super().unscaled_leaf(leaf, scale)


@breaks("SCALING-scale-float32", "MindSpore 2.10.0: the reciprocal is cast to the dtype of the gradients, unless it becomes zero")
class MultipliesByAFloat16Reciprocal(Plain):
    def unscaled_leaf(self, leaf, scale):
        reciprocal = np.float16(1 / float(scale))
        narrow = leaf.dtype == np.float16 and reciprocal != 0
        return np.asarray(leaf * reciprocal) if narrow else super().unscaled_leaf(leaf, scale)


@breaks("SCALING-unscale-divides", "observed in MindSpore 2.10.0 and Paddle 3.3.1: a multiplication is faster than a division")
class MultipliesByAReciprocal(Plain):
    def quotient(self, part, scale):
        return part * np.float32(1 / float(scale)) if part.dtype == np.float32 else super().quotient(part, scale)


@breaks("SCALING-round-once", "observed in torch 2.13.0: the reciprocal is a float32, for float64 gradients too")
class MultipliesByAFloat32Reciprocal(Plain):
    def quotient(self, part, scale):
        return part * np.float64(np.float32(1 / float(scale))) if part.dtype == np.float64 else super().quotient(part, scale)


@breaks("SCALING-unscale-divides", "not observed: the scale is a bfloat16, instead of the float16 of google-deepmind/jmp#47")
class UnscalesByABfloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, np.uint32(np.float32(scale).view(np.uint32) & 0xFFFF0000).view(np.float32))


@breaks(
    "SCALING-unscale-divides", "not observed: an exponent is subtracted, as if every scale were a power of two", capabilities=()
)
class UnscalesByAPowerOfTwo(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, 2.0 ** round(math.log2(scale)))


@breaks("SCALING-unscale-divides", "not observed: the scale is read from a configuration as an int", capabilities=())
class UnscalesByAnInteger(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, int(scale) or scale)


@breaks("SCALING-scale", "tensorflow/tensorflow#38357: a scale below 1 is replaced by 1")
class ScalesByAtLeastOne(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf, max(scale, 1.0))


@breaks("SCALING-unscale-divides", "tensorflow/tensorflow#38357: a scale below 1 is replaced by 1")
class UnscalesByAtLeastOne(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, max(scale, 1.0))


@breaks("SCALING-nonfinite", "NVlabs/stylegan2-ada-pytorch: non-finite gradients are replaced by zero")
class ScalesInfinityToZero(Plain):
    def product(self, part, scale):
        return np.where(np.isfinite(part), super().product(part, scale), part.dtype.type(0))


@breaks("SCALING-scale", "pytorch/pytorch#195851: results are added to zeros, as in torch.cumsum")
class ScalesNegativeZeroToZero(Plain):
    def product(self, part, scale):
        return part.dtype.type(0) + super().product(part, scale)


@breaks("SCALING-nonfinite", "NVlabs/stylegan2-ada-pytorch: non-finite gradients are replaced by zero")
class UnscalesInfinityToZero(Plain):
    def quotient(self, part, scale):
        return np.where(np.isfinite(part), super().quotient(part, scale), part.dtype.type(0))


@breaks("SCALING-unscale-divides", "pytorch/pytorch#195851: results are added to zeros, as in torch.cumsum")
class UnscalesNegativeZeroToZero(Plain):
    def quotient(self, part, scale):
        return part.dtype.type(0) + super().quotient(part, scale)


@breaks("SCALING-complex", "not observed: a cast to a real dtype, which only warns")
class DropsImaginaryParts(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf.real.astype(leaf.dtype) if leaf.dtype.kind == "c" else leaf, scale)


@breaks("SCALING-complex", "not observed: a kernel for real numbers scales only the real parts")
class ScalesRealPartsOnly(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        return result.real + leaf.imag * leaf.dtype.type(1j) if leaf.dtype.kind == "c" else result


@breaks("SCALING-complex", "tensorcircuit/tensorcircuit-ng#119: every complex dtype is treated as complex64")
class UnscalesComplex128InComplex64(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.astype(np.complex64) if leaf.dtype == np.complex128 else leaf, scale).astype(leaf.dtype)


@breaks("SCALING-unscale-divides", "planted: the division by a scale beyond float16 has two steps, and is rounded twice")
class UnscalesFloat16InTwoSteps(Plain):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16 or scale < 2.0**16:
            return super().unscaled_leaf(leaf, scale)
        return super().unscaled_leaf(super().unscaled_leaf(leaf, 256.0), scale / 256)


@breaks("SCALING-unscale-divides", "planted: a quotient beyond the largest number saturates")
class SaturatesQuotients(Plain):
    def quotient(self, part, scale):
        largest = np.finfo(part.dtype).max
        return np.where(np.isfinite(part), np.clip(super().quotient(part, scale), -largest, largest), part)


@breaks("SCALING-scale", "planted: NaNs become zero in imaginary parts")
class RemovesImaginaryNans(Plain):
    def scaled_leaf(self, leaf, scale):
        scaled = super().scaled_leaf(leaf, scale)
        if scaled.dtype.kind == "c":
            scaled.imag[np.isnan(scaled.imag)] = 0
        return scaled


@breaks("SCALING-scale", "planted: bfloat16 stores the scale, of an implementation that divides inexactly", "torch", 1, ["none"])
class ScalesByEightBits(Plain):
    def product(self, part, scale):
        return super().product(part, (np.float32(scale).view(np.uint32) >> 16 << 16).view(np.float32))


@breaks("SCALING-scale", "planted: float16 losses are divided by the reciprocal of the scale, which is infinite for small scales")
class DividesByAnInfiniteReciprocal(Plain):
    def scaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            reciprocal = np.float16(1 / np.float32(scale))
            is_lost = np.asarray(leaf).dtype == np.float16 and np.isinf(reciprocal)
            return np.asarray(leaf / reciprocal) if is_lost else super().scaled_leaf(leaf, scale)


@breaks("SCALING-scale", "planted: a power of two is added to the exponent, which carries into the sign")
class AddsToTheExponent(Plain):
    def product(self, part, scale):
        product = super().product(part, scale)
        if part.dtype != np.float32 or math.frexp(scale)[0] != 0.5:
            return product
        with np.errstate(over="ignore"):
            bits = part.view(np.uint32) + np.uint32(round(math.log2(scale)) << 23 & 0xFFFFFFFF)
        return np.where(np.isfinite(part) & np.isinf(product), bits.view(np.float32), product)


@breaks("SCALING-scale", "planted: a product that bfloat16 rounds to infinity becomes its largest number")
class SaturatesBfloat16Losses(Plain):
    def narrowed(self, result, dtype):
        narrow = super().narrowed(result, dtype)
        if dtype.name != "bfloat16":
            return narrow
        largest = np.copysign(np.float32(2.0**128 - 2.0**120), result).astype(dtype)
        return np.where(np.isfinite(result) & np.isinf(narrow), largest, narrow)


@breaks("SCALING-scale", "planted: a scaler rounds its float64 scale to the compute dtype of the first array", "apex")
class RoundsTheScaleForTheFirstArray(Plain):
    def scale(self, handle, tree):
        self.first = None
        return super().scale(handle, tree)

    def scale_for(self, part, scale):
        self.first = getattr(self, "first", None) or part.dtype
        return part.dtype.type(self.first.type(scale))


@breaks("SCALING-scale", "planted: a fused kernel for large float16 arrays takes a float16 scale")
class ScalesLargeArraysInFloat16(Plain):
    def scaled_leaf(self, leaf, scale):
        large = leaf.dtype == np.float16 and leaf.size > 2**16
        with np.errstate(all="ignore"):
            return leaf * np.float16(scale) if large else super().scaled_leaf(leaf, scale)


@breaks("SCALING-unscale-divides", "planted: float32 arrays are multiplied by the reciprocal, which is zero if it is subnormal")
class MultipliesByAFlushedReciprocal(Plain):
    def quotient(self, part, scale):
        quotient = super().quotient(part, scale)
        return quotient * np.float32(0) if part.dtype == np.float32 and scale > 2.0**126 else quotient


@breaks("SCALING-unscale-divides", "planted: vector instructions flush subnormal numbers; the rest of an array keeps them")
class FlushesSubnormalVectors(Plain):
    def quotient(self, part, scale):
        quotient = super().quotient(part, scale)
        is_flushed = (part.dtype == np.float32) & (part.size > 16) & (np.abs(quotient) < 2.0**-126)
        return np.where(is_flushed, np.copysign(np.float32(0), quotient), quotient)


@breaks("SCALING-unscale-divides", "planted: a tiny divisor is replaced, as against a division by zero", "torch")
class DividesByAtLeast2ToMinus60(Plain):
    def quotient(self, part, scale):
        return super().quotient(part, max(scale, 2.0**-60))


@breaks("SCALING-unscale-divides", "planted: vector instructions for more than 1024 float64 elements multiply by the reciprocal")
class DividesManyElementsByAReciprocal(Plain):
    def quotient(self, part, scale):
        many = part.size > 1024 and part.dtype == np.float64
        return part * (1 / self.scale_for(part, scale)) if many else super().quotient(part, scale)


@breaks("SCALING-unscale-divides", "planted: infinities among more than 1024 elements are replaced by the largest number")
class ReplacesManyInfinities(Plain):
    def quotient(self, part, scale):
        quotient = super().quotient(part, scale)
        return np.nan_to_num(quotient, nan=np.nan) if part.size > 1024 else quotient


@breaks("SCALING-unscale-divides", "planted: two arrays are stacked in the dtype of the first one", capabilities=("float16",))
class UnscalesTwoArraysInOneDtype(Plain):
    def unscale(self, handle, tree):
        leaves = arrays(tree)
        if len(leaves) == 2:
            with np.errstate(all="ignore"):
                leaves[1] = np.asarray(leaves[1].astype(leaves[0].dtype).astype(leaves[1].dtype))
        remaining = iter(leaves)
        return super().unscale(handle, map_tree(lambda _: next(remaining), tree))


MUTANTS = tuple(_TABLE)
