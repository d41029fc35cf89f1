"""Chapter 40, norms: norms and clipping in a step, wrong in one way each."""

import numpy as np

from . import table
from .loop import Loop

_TABLE, wrong = table()


@wrong("NORMS-global", "Lightning-AI/pytorch-lightning#9205: the norm that is logged is of scaled gradients")
class TellsTheNormOfScaledGradients(Loop):
    def told_norm(self, norm, clipped):
        return norm * self.last_scale

    def backward(self, data, scale):
        self.last_scale = float(scale)
        return super().backward(data, scale)


@wrong("NORMS-global", "paiml/entrenar#311, and MindFormers 1.3.0 for local norms: squares are taken for norms")
class AddsUpNorms(Loop):
    def told_norm(self, norm, clipped):
        return float(sum(np.sum(np.square(gradient.astype(np.float64))) for gradient in clipped))


@wrong(
    "NORMS-clip-before",
    "not seen; the norm is taken again after clipping, and is always the limit: verl-project/verl#2282 asks for it",
)
class TellsTheNormAfterClipping(Loop):
    def told_norm(self, norm, clipped):
        return self.euclidean(clipped)


@wrong("NORMS-clip", "harubaru/waifu-diffusion#64, milesial/Pytorch-UNet#468: gradients are clipped while they are scaled")
class ClipsBeforeUnscaling(Loop):
    def coefficient(self, max_norm, norm):
        return super().coefficient(max_norm, norm * self.last_scale)

    def backward(self, data, scale):
        self.last_scale = float(scale)
        return super().backward(data, scale)


@wrong("NORMS-clip", "carpedm20/MemN2N-tensorflow#19, huggingface/transformers#581: each parameter is clipped by its own norm")
class ClipsEachArray(Loop):
    def clip(self, cell, gradients, norm):
        return [super(ClipsEachArray, self).clip(cell, [gradient], self.euclidean([gradient]))[0] for gradient in gradients]


@wrong("NORMS-clip-under-limit", "not seen; the coefficient is not held to 1, and small gradients grow to the limit")
class NormalizesAlways(Loop):
    def coefficient(self, max_norm, norm):
        return np.float32(max_norm / (norm + 1e-6))


@wrong(
    "NORMS-clip-magnitudes",
    "ampscale itself, before its first release: 1e39 is infinite in float32, and infinity by infinity is NaN",
)
class RoundsTheLimit(Loop):
    def coefficient(self, max_norm, norm):
        with np.errstate(all="ignore"):
            return super().coefficient(np.float32(max_norm), norm)


@wrong("STEP-clip", "facebookresearch/fairseq#4555: the check looks at the norm, which overflows first")
class TakesTheNormForTheCheck(Loop):
    def finite_in_cell(self, scaled, gradients, norm):
        with np.errstate(all="ignore"):
            return bool(np.isfinite(sum(np.sum(np.square(gradient), dtype=np.float32) for gradient in gradients)))


MUTANTS = tuple(_TABLE)
