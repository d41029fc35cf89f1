"""Chapter 40, norms: the reported gradient norm, and the clipped gradients."""

from ..model.case import under
from .step_drawn import steps

CASES = (
    steps("NORMS-global/the-norm-is-of-all-gradients-unscaled", "+t0lw-+", "global_norm", "wrong norm: scaled, or of one array"),
    *under(
        "NORMS-clip-before",
        steps("the-norm-is-the-one-before-clipping", "+t0lw-+", "global_norm", "late norm: always the limit", max_norm=1.0),
    ),
    *under(
        "NORMS-clip",
        steps("clips-all-gradients-by-one-coefficient", "+w-l+t+0", "parameters", "wrong clipping: by array", max_norm=1.0),
    ),
    *under(
        "NORMS-clip-under-limit",
        steps("leaves-gradients-under-the-limit", "+-+", "parameters", "normalization: up to the limit", max_norm=64.0),
    ),
    *under(
        "NORMS-clip-magnitudes",
        steps("takes-a-limit-beyond-float32", "+-", "parameters", "infinite limit: parameters become NaN", max_norm=1e39),
    ),
    steps("STEP-clip/an-infinite-norm-is-no-overflow", "h", "finite", "overflow of the norm: it skips the step", max_norm=1.0),
)
