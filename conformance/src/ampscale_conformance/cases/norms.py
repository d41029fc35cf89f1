"""Chapter 40, norms: the reported gradient norm, and the clipped gradients."""

from ..model.case import under
from .step_drawn import steps

CASES = (
    steps(
        "NORMS-global/the-norm-is-of-all-gradients-unscaled",
        "+t0lw-+",
        "global_norm",
        "wrong norm: the norm of scaled gradients or of one array, or a sum of norms",
    ),
    *under(
        "NORMS-clip-before",
        steps(
            "the-norm-is-the-one-before-clipping",
            "+t0lw-+",
            "global_norm",
            "late norm: the norm after clipping, which always equals the limit",
            max_norm=1.0,
        ),
    ),
    *under(
        "NORMS-clip",
        steps(
            "clips-all-gradients-by-one-coefficient",
            "+w-l+t+0",
            "parameters",
            "wrong clipping: scaled gradients, each array, or each element is clipped by itself",
            max_norm=1.0,
        ),
    ),
    *under(
        "NORMS-clip-under-limit",
        steps(
            "leaves-gradients-under-the-limit", "+-+", "parameters", "normalization: gradients are scaled up to it", max_norm=64.0
        ),
    ),
    *under(
        "NORMS-clip-magnitudes",
        steps(
            "takes-a-limit-beyond-float32",
            "+-",
            "parameters",
            "infinite limit: the limit overflows float32, so the coefficient and the updated parameters are NaN",
            max_norm=1e39,
        ),
    ),
    steps(
        "STEP-clip/an-infinite-norm-is-no-overflow",
        "h",
        "finite",
        "overflow of the norm: finite gradients with an infinite norm skip the step, and the scale backs off",
        max_norm=1.0,
    ),
)
