"""Chapter 10, scaling: wrong numbers."""

import math

import numpy as np

from . import table
from .plain import Plain

_TABLE, wrong = table()
SMALLEST, SMALLEST_NORMAL = 2.0**-24, 2.0**-14  # of float16


# --- ways to round, and to read, that others are made of ---


class _TowardZero(Plain):
    def narrowed(self, result, dtype):
        made = super().narrowed(result, dtype)
        too_far = np.isfinite(made) & (abs(made.astype(np.float32)) > abs(result))
        return np.where(too_far, np.nextafter(made, dtype.type(0)), made) if dtype == np.float16 else made


class _CutOff(Plain):
    def narrowed(self, result, dtype):
        if dtype.name != "bfloat16":
            return super().narrowed(result, dtype)
        return (result.view(np.uint32) >> 16).astype(np.uint16).view(dtype)


class _WithoutSubnormals(Plain):
    def widened(self, part):
        small = (abs(part) < SMALLEST_NORMAL) & (part.dtype == np.float16)
        return super().widened(np.where(small, np.copysign(part.dtype.type(0), part), part) if np.any(small) else part)


# --- wrong results ---


@wrong("SCALING-round-once", "not seen; the product lies in a region that casts to half")
class ScalesFloat32InHalf(Plain):
    def product(self, part, scale):
        return super().product(part.astype(np.float16).astype(np.float32) if part.dtype == np.float32 else part, scale)


@wrong("SCALING-round-once", "not seen; the scale is a float32, and so is the product")
class ScalesFloat64InSingle(Plain):
    def product(self, part, scale):
        return super().product(part.astype(np.float32), scale)


@wrong("SCALING-round-once", "not seen; a conversion to float16 of one's own cuts off what has no room")
class ScalesWithTruncation(Plain):
    def scaled_leaf(self, leaf, scale):
        return _TowardZero().scaled_leaf(leaf, scale)


@wrong(
    "SCALING-round-once", "bfloat16 is taken for the upper half of a float32: tenstorrent/tt-metal#19882, groonga/groonga#2961"
)
class CutsOffBfloat16Gradients(Plain):
    def unscaled_leaf(self, leaf, scale):
        return _CutOff().unscaled_leaf(leaf, scale)


@wrong(
    "SCALING-round-once", "bfloat16 is taken for the upper half of a float32: tenstorrent/tt-metal#19882, groonga/groonga#2961"
)
class CutsOffBfloat16Losses(Plain):
    def scaled_leaf(self, leaf, scale):
        return _CutOff().scaled_leaf(leaf, scale)


@wrong("SCALING-round-once", "not seen; the processor's mode for denormals: they are read as zero")
class ScalesSubnormalsAsZero(Plain):
    def scaled_leaf(self, leaf, scale):
        return _WithoutSubnormals().scaled_leaf(leaf, scale)


@wrong("SCALING-round-once", "a cast, or hardware, that does not overflow: tinygrad/tinygrad#17087")
class SaturatesFloat16(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        hidden = np.isfinite(leaf) & np.isinf(result)
        return np.where(hidden, np.copysign(leaf.dtype.type(65504), result), result) if leaf.dtype == np.float16 else result


@wrong("SCALING-round-once", "a float16 times a float is a float16: observed in torch 2.15.0, NumPy 2.4.6 and JAX 0.10.2")
class WidensAfterItHasScaled(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        return result.astype(np.float32) if leaf.dtype == np.float16 else result


@wrong(
    "SCALING-scale-float32",
    "the scale is cast to the dtype of what it scales: Azure/MS-AMP#47, pytorch/pytorch#98691, google-deepmind/jmp#47",
)
class ScalesByAFloat16(Plain):
    def scaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            return np.asarray(leaf * np.float16(scale)) if leaf.dtype == np.float16 else super().scaled_leaf(leaf, scale)


@wrong("SCALING-round-once", "not seen; gradients are copied into a buffer of half precision")
class UnscalesFloat32InHalf(Plain):
    def unscaled_leaf(self, leaf, scale):
        held = leaf.astype(np.float16).astype(leaf.dtype) if leaf.dtype == np.float32 else leaf
        return super().unscaled_leaf(held, scale)


@wrong("SCALING-round-once", "not seen; gradients are copied into a buffer of single precision")
class UnscalesFloat64FromSingle(Plain):
    def unscaled_leaf(self, leaf, scale):
        held = leaf.astype(np.float32).astype(leaf.dtype) if leaf.dtype == np.float64 else leaf
        return super().unscaled_leaf(held, scale)


@wrong("SCALING-round-once", "not seen; 16 bits are 16 bits: a buffer of bfloat16 for both")
class UnscalesFloat16InBfloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16:
            return super().unscaled_leaf(leaf, scale)
        kept = leaf.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return super().unscaled_leaf(kept.view(np.float32), scale).astype(np.float16)


@wrong("SCALING-round-once", "not seen; 16 bits are 16 bits: a buffer of float16 for both")
class UnscalesBfloat16InFloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            held = leaf.astype(np.float16) if leaf.dtype.name == "bfloat16" else leaf
        return super().unscaled_leaf(held, scale).astype(leaf.dtype)


@wrong("SCALING-round-once", "not seen; a conversion to float16 of one's own shifts into subnormals, and what falls off is lost")
class UnscalesWithTruncation(Plain):
    def unscaled_leaf(self, leaf, scale):
        return _TowardZero().unscaled_leaf(leaf, scale)


@wrong("SCALING-round-once", "a conversion to float16 of one's own adds a half before it shifts: invergent-ai/surogate#162")
class RoundsUnderflowsUp(Plain):
    def narrowed(self, result, dtype):
        if dtype != np.float16:
            return super().narrowed(result, dtype)
        steps = np.floor(abs(result / np.float32(SMALLEST)) + np.float32(0.5))
        subnormal = np.copysign(steps * np.float32(SMALLEST), result)
        return super().narrowed(np.where(steps < 1024, subnormal, result), dtype)


@wrong("SCALING-round-once", "subnormals are written as zero: invergent-ai/surogate#162")
class FlushesUnderflows(Plain):
    def narrowed(self, result, dtype):
        small = (abs(result) < SMALLEST_NORMAL) & (dtype == np.float16)
        return super().narrowed(np.where(small, np.copysign(result.dtype.type(0), result), result), dtype)


@wrong("SCALING-round-once", "not seen; the processor's mode for denormals: they are read as zero")
class UnscalesSubnormalsAsZero(Plain):
    def unscaled_leaf(self, leaf, scale):
        return _WithoutSubnormals().unscaled_leaf(leaf, scale)


@wrong("SCALING-widen", "not seen; master gradients are copied from gradients that were unscaled in half")
class WidensAfterItHasUnscaled(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        return result.astype(np.float32) if leaf.dtype == np.float16 else result


@wrong("SCALING-widen", "not seen; what underflows in half is set to zero before the master gradient is made")
class WidensWithoutUnderflows(Plain):
    def unscaled_leaf(self, leaf, scale):
        if leaf.dtype != np.float16:
            return super().unscaled_leaf(leaf, scale)
        lost = super().unscaled_leaf(leaf, scale) == 0
        return np.where(lost, np.float32(0), super().unscaled_leaf(leaf.astype(np.float32), scale))


@wrong("SCALING-scale-float32", "the scale is cast to the dtype of what it scales: Azure/MS-AMP#47, pytorch/pytorch#98691")
class DividesByAFloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        with np.errstate(all="ignore"):
            return np.asarray(leaf / np.float16(scale)) if leaf.dtype == np.float16 else super().unscaled_leaf(leaf, scale)


@wrong(
    "SCALING-scale-float32", "the reciprocal is cast to the dtype of the gradients, as MindSpore 2.10.0 does, unless it vanishes"
)
class MultipliesByAFloat16Reciprocal(Plain):
    def unscaled_leaf(self, leaf, scale):
        reciprocal = np.float16(1 / float(scale))
        narrow = leaf.dtype == np.float16 and reciprocal != 0
        return np.asarray(leaf * reciprocal) if narrow else super().unscaled_leaf(leaf, scale)


@wrong("SCALING-unscale-divides", "a division is slow: observed in MindSpore 2.10.0 and Paddle 3.3.1")
class MultipliesByAReciprocal(Plain):
    def quotient(self, part, scale):
        return part * np.float32(1 / float(scale)) if part.dtype == np.float32 else super().quotient(part, scale)


@wrong("SCALING-round-once", "the reciprocal is a float32, beside float64 gradients too: observed in torch 2.13.0")
class MultipliesByAFloat32Reciprocal(Plain):
    def quotient(self, part, scale):
        return part * np.float64(np.float32(1 / float(scale))) if part.dtype == np.float64 else super().quotient(part, scale)


@wrong("SCALING-unscale-divides", "not seen; the float16 scale of google-deepmind/jmp#47, mended by half")
class UnscalesByABfloat16(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, np.uint32(np.float32(scale).view(np.uint32) & 0xFFFF0000).view(np.float32))


@wrong("SCALING-unscale-divides", "not seen; an exponent is subtracted, as if every scale were a power of two")
class UnscalesByAPowerOfTwo(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, 2.0 ** round(math.log2(scale)))


@wrong("SCALING-unscale-divides", "not seen; the scale is read from a configuration as an int")
class UnscalesByAnInteger(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, int(scale) or scale)


@wrong("SCALING-scale", "a scale below 1 is taken for 1: tensorflow/tensorflow#38357")
class ScalesByOneAtLeast(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf, max(scale, 1.0))


@wrong("SCALING-unscale-divides", "a scale below 1 is taken for 1: tensorflow/tensorflow#38357")
class UnscalesByOneAtLeast(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf, max(scale, 1.0))


@wrong("SCALING-nonfinite", "what is not finite is cleaned away, as NVlabs/stylegan2-ada-pytorch does with gradients")
class ScalesInfinityToZero(Plain):
    def product(self, part, scale):
        return np.where(np.isfinite(part), super().product(part, scale), part.dtype.type(0))


@wrong("SCALING-scale", "results are added onto zeros, as in torch.cumsum: pytorch/pytorch#195851")
class ScalesNegativeZeroToZero(Plain):
    def product(self, part, scale):
        return part.dtype.type(0) + super().product(part, scale)


@wrong("SCALING-nonfinite", "what is not finite is cleaned away, as NVlabs/stylegan2-ada-pytorch does with gradients")
class UnscalesInfinityToZero(Plain):
    def quotient(self, part, scale):
        return np.where(np.isfinite(part), super().quotient(part, scale), part.dtype.type(0))


@wrong("SCALING-unscale-divides", "results are added onto zeros, as in torch.cumsum: pytorch/pytorch#195851")
class UnscalesNegativeZeroToZero(Plain):
    def quotient(self, part, scale):
        return part.dtype.type(0) + super().quotient(part, scale)


@wrong("SCALING-complex", "not seen; a cast to a real dtype, which only warns")
class DropsImaginaryParts(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf.real.astype(leaf.dtype) if leaf.dtype.kind == "c" else leaf, scale)


@wrong("SCALING-complex", "not seen; a kernel for real numbers goes through the elements")
class ScalesRealPartsOnly(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        return result.real + leaf.imag * leaf.dtype.type(1j) if leaf.dtype.kind == "c" else result


@wrong("SCALING-complex", "complex means complex64: tensorcircuit/tensorcircuit-ng#119")
class UnscalesComplex128InComplex64(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.astype(np.complex64) if leaf.dtype == np.complex128 else leaf, scale).astype(leaf.dtype)


MUTANTS = tuple(_TABLE)
