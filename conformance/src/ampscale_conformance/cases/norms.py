"""Chapter 40, norms: the reported gradient norm, and the clipped gradients."""

from .rows import rows
from .step_drawn import step_case

TRACES = """
NORMS-global/the-norm-is-of-all-gradients-unscaled | +t0lw-+ | outputs=global_norm
    wrong norm: the norm of scaled gradients or of one array, or a sum of norms
NORMS-global/the-norm-is-of-many-gradients | + | outputs=global_norm layout=g steps=1
    partial norm: the arrays or elements beyond those of one kernel launch do not count
NORMS-magnitudes/large-and-small-gradients-have-a-norm | +hvx-+ | outputs=global_norm
    squares in float32: they overflow or underflow, so the norm is infinite or zero
NORMS-clip-before/the-norm-is-the-one-before-clipping | +t0lw-+ | outputs=global_norm max_norm=1.0
    late norm: the norm after clipping, which always equals the limit
NORMS-clip/clips-all-gradients-by-one-coefficient | +w-l+t+0 | max_norm=3.0
    wrong clipping: scaled gradients, each array, or each element is clipped by itself
NORMS-clip/clips-small-gradients-to-a-small-limit | u | max_norm=2**-15 learning_rate=2**4 steps=40
    large epsilon: more than 1e-6 is added to the norm, or later steps are not clipped
NORMS-clip-round-once/clips-float16-by-a-tiny-coefficient | s | dtype=float16 max_norm=2**-15 learning_rate=2**15 init_scale=1.0
    narrow coefficient: it is rounded to float16, in which it is zero or has one digit
NORMS-clip-under-limit/leaves-gradients-under-the-limit | +-+ | max_norm=64.0
    normalization: gradients with a smaller norm are scaled up to the limit
NORMS-clip-magnitudes/takes-a-limit-beyond-float32 | +-h---------x | max_norm=1e39
    infinite limit or norm: the limit, or a square, overflows float32, so the parameters are NaN, or large gradients become zero
STEP-clip/an-infinite-norm-is-no-overflow | hx | outputs=finite max_norm=1.0 init_scale=1.0
    overflow of the norm: finite gradients with an infinite norm skip the step, and the scale backs off
"""

CASES = tuple(map(step_case, rows(TRACES)))
