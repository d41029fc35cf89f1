"""Chapter 20, overflow: whether a tree contains an infinity or a NaN."""

from functools import partial

from ..model.bits import Bits
from ..model.case import named
from .overflow_drawn import checks_drawn_trees
from .tensor_vectors import check_flag, vector_cases

VECTORS = """
OVERFLOW-answer/the-answer-is-one-bool | finite-gradients
OVERFLOW-elementwise/a-sum-beyond-float16-is-finite | large-sum-in-float16
OVERFLOW-elementwise/a-sum-beyond-float32-is-finite | large-sum
OVERFLOW-elementwise/a-range-beyond-float32-is-finite | large-range
OVERFLOW-elementwise/infinities-do-not-cancel | opposite-infinities
OVERFLOW-edges/the-largest-float16-is-finite | edges-of-float16
OVERFLOW-edges/the-largest-float32-is-finite | edges-of-float32
OVERFLOW-edges/the-largest-float64-is-finite | edges-of-float64
OVERFLOW-edges/the-largest-bfloat16-is-finite | edges-of-bfloat16
OVERFLOW-edges/subnormals-are-finite | subnormals
OVERFLOW-integers/integers-are-finite | integers
OVERFLOW-integers/bools-are-finite | bools
OVERFLOW-integers/integers-hide-no-overflow | integers-beside-nan
OVERFLOW-complex/real-parts-are-checked | complex-bad-real
OVERFLOW-complex/imaginary-parts-are-checked | complex-bad-imaginary
OVERFLOW-complex/a-large-complex-is-finite | complex-large
OVERFLOW-empty/an-array-without-elements-is-finite | size-zero
OVERFLOW-empty/an-array-without-elements-hides-nothing | size-zero-beside-non-finite
OVERFLOW-empty/an-empty-tree-is-finite | empty-tree
OVERFLOW-none/none-is-finite | none-beside-finite
OVERFLOW-none/none-hides-no-overflow | none-beside-infinity
"""

CASES = (
    named(
        "OVERFLOW-all-finite/finds-overflows-everywhere",
        1,
        "narrow counter: a 16-bit count of non-finite values wraps to zero",
        partial(check_flag, tree=[Bits("float16", (2**16,), (0x7E00, 0xFC00) * 2**15)], expected=False),
        {"float16"},
    ),
    checks_drawn_trees,
    *vector_cases(VECTORS),
)
