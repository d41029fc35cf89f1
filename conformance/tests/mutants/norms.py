"""Mutants of chapter 40: norms and clipping in a step."""

import numpy as np

from . import table
from .loop import Loop

_TABLE, breaks = table()


@breaks("NORMS-global", "Lightning-AI/pytorch-lightning#9205: the logged norm is that of scaled gradients")
class ReportsTheNormOfScaledGradients(Loop):
    def reported_norm(self, norm, clipped):
        return norm * self.last_scale

    def backward(self, data, scale):
        self.last_scale = float(scale)
        return super().backward(data, scale)


@breaks("NORMS-global", "paiml/entrenar#311, and MindFormers 1.3.0 for local norms: the square is returned as the norm")
class ReportsTheSquaredNorm(Loop):
    def reported_norm(self, norm, clipped):
        return float(sum(np.sum(np.square(gradient.astype(np.float64))) for gradient in clipped))


@breaks("NORMS-global", "planted: the norm of the first step is reported in all steps, as by a captured graph")
class ReportsTheFirstNorm(Loop):
    def outputs(self, cell, **numbers):
        cell.norm = getattr(cell, "norm", numbers["global_norm"])
        return super().outputs(cell, **{**numbers, "global_norm": cell.norm})


@breaks("NORMS-global", "planted: a table of partial sums ends at 64 arrays")
class AddsAtMost64Arrays(Loop):
    def euclidean(self, arrays):
        return super().euclidean(arrays[:64])


@breaks(
    "NORMS-clip-before",
    "not observed: the norm is computed again after clipping, as requested in verl-project/verl#2282",
)
class ReportsTheNormAfterClipping(Loop):
    def reported_norm(self, norm, clipped):
        return self.euclidean(clipped)


@breaks("NORMS-clip", "harubaru/waifu-diffusion#64, milesial/Pytorch-UNet#468: gradients are clipped while they are scaled")
class ClipsBeforeUnscaling(Loop):
    def coefficient(self, max_norm, norm):
        return super().coefficient(max_norm, norm * self.last_scale)

    def backward(self, data, scale):
        self.last_scale = float(scale)
        return super().backward(data, scale)


@breaks("NORMS-clip", "carpedm20/MemN2N-tensorflow#19, huggingface/transformers#581: each parameter is clipped by its own norm")
class ClipsEachArray(Loop):
    def clip(self, cell, gradients, norm):
        return [super(ClipsEachArray, self).clip(cell, [gradient], self.euclidean([gradient]))[0] for gradient in gradients]


@breaks("NORMS-clip", "not observed: the coefficient of the first step is kept, as in a captured graph")
class KeepsTheFirstCoefficient(Loop):
    def clip(self, cell, gradients, norm):
        cell.first = getattr(cell, "first", norm)
        return super().clip(cell, gradients, cell.first)


@breaks("NORMS-global", "not observed: the norm is computed in float16, where small squares are zero and large ones infinite")
class ReportsANarrowNorm(Loop):
    def reported_norm(self, norm, clipped):
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.float16(norm) ** 2, dtype=np.float32)) if norm == norm else norm


@breaks("NORMS-clip-under-limit", "not observed: the coefficient is not limited to 1, and small gradients grow to the limit")
class AlwaysNormalizes(Loop):
    def coefficient(self, max_norm, norm):
        return np.float32(max_norm / (norm + 1e-6))


@breaks(
    "NORMS-clip-magnitudes",
    "ampscale itself, before its first release: 1e39 is infinite in float32, and infinity divided by infinity is NaN",
)
class RoundsTheLimit(Loop):
    def coefficient(self, max_norm, norm):
        with np.errstate(all="ignore"):
            return super().coefficient(np.float32(max_norm), norm)


@breaks("STEP-clip", "facebookresearch/fairseq#4555: the check tests the norm, which overflows first")
class ChecksTheNormInTheStep(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(sum(np.sum(np.square(gradient), dtype=np.float32) for gradient in gradients)))


@breaks("NORMS-clip", "planted: an epsilon of 1e-5, as optimizers have, is added to the norm")
class AddsALargeEpsilon(Loop):
    def coefficient(self, max_norm, norm):
        return np.float32(max_norm / (max(norm, max_norm) + 1e-5))


@breaks("NORMS-clip", "planted: a limit above 1 is taken for a percentage, and becomes 1")
class ClipsToAtMostOne(Loop):
    def coefficient(self, max_norm, norm):
        return super().coefficient(min(max_norm, 1.0), norm)


@breaks("NORMS-clip", "planted: gradients are clipped only during a warmup of ten steps")
class ClipsDuringAWarmup(Loop):
    def clip(self, cell, gradients, norm):
        return super().clip(cell, gradients, norm) if cell.attempted < 10 else list(gradients)


@breaks(
    "NORMS-clip-round-once", "torch 2.13.0, with a ShardedGradScaler: the coefficient of float16 gradients is a float16 number"
)
class RoundsTheCoefficientToFloat16(Loop):
    def clip(self, cell, gradients, norm):
        with np.errstate(all="ignore"):
            narrow = np.float16(super().coefficient(cell.max_norm or 1.0, norm))
        pairs = zip(gradients, super().clip(cell, gradients, norm), strict=True)
        narrows = cell.max_norm is not None and np.isfinite(norm)
        return [before * narrow if narrows and before.dtype == np.float16 else after for before, after in pairs]


@breaks("NORMS-clip", "planted: gradients are clipped from one and a half times the limit on")
class ClipsFarAboveTheLimit(Loop):
    def coefficient(self, max_norm, norm):
        return super().coefficient(max_norm, norm) if norm > 1.5 * max_norm else np.float32(1)


@breaks("NORMS-magnitudes", "torch 2.13.0, optax 0.2.8: squares are computed in float32, and that of 2**70 is infinite")
class NormSquaresOverflow(Loop):
    def reported_norm(self, norm, clipped):
        return norm if norm < 2.0**64 else np.inf


@breaks("NORMS-magnitudes", "torch 2.13.0, optax 0.2.8: squares are computed in float32, and that of 2**-80 is zero")
class NormSquaresUnderflow(Loop):
    def reported_norm(self, norm, clipped):
        return norm if norm > 2.0**-75 else 0.0


@breaks("NORMS-clip-magnitudes", "torch 2.13.0: the norm of large gradients is infinite, and the limit divided by it is zero")
class ClipRemovesHuge(Loop):
    def coefficient(self, max_norm, norm):
        return super().coefficient(max_norm, norm) if norm < 2.0**64 else np.float32(0)


@breaks("NORMS-clip-magnitudes", "planted: a norm beyond the largest float32 is infinite, and the limit divided by it is zero")
class ClipRemovesGradientsOfAnInfiniteNorm(Loop):
    def coefficient(self, max_norm, norm):
        return super().coefficient(max_norm, norm) if norm < 2.0**128 else np.float32(0)


@breaks("NORMS-magnitudes", "planted: the norm of scaled gradients is divided by the scale, and is infinite before that")
class DividesTheNormByTheScale(Loop):
    def norm_of(self, scaled, gradients):
        with np.errstate(all="ignore"):
            return float(np.float32(super().norm_of(gradients, scaled)))

    def reported_norm(self, norm, clipped):
        return norm / self.last_scale

    def backward(self, data, scale):
        self.last_scale = float(scale)
        return super().backward(data, scale)

    def coefficient(self, max_norm, norm):
        return super().coefficient(max_norm, norm / self.last_scale)


@breaks("STEP-every-sequence", "planted: float64 gradients are not clipped if there are others")
class ClipsNoFloat64(Loop):
    def clip(self, cell, gradients, norm):
        pairs = zip(gradients, super().clip(cell, gradients, norm), strict=True)
        return [gradient if gradient.dtype == np.float64 and len(gradients) > 1 else clipped for gradient, clipped in pairs]


@breaks("STEP-every-sequence", "planted: bfloat16 gradients are not clipped")
class ClipsNoBfloat16(Loop):
    def clip(self, cell, gradients, norm):
        triples = zip(cell.parameters, gradients, super().clip(cell, gradients, norm), strict=True)
        return [old if parameter.dtype.name == "bfloat16" else new for parameter, old, new in triples]


MUTANTS = tuple(_TABLE)
