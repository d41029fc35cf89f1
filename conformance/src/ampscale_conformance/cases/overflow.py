"""Chapter 20, overflow: whether a tree contains an infinity or a NaN."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits, arrays
from ..model.case import Case, named, under
from ..model.subject import Subject
from ..oracle.tensors import array, bfloat16, complex64, float16, float32, float64
from .overflow_drawn import checks_drawn_trees

INF, NAN = math.inf, math.nan
GOOD = float32(1.5, -3.0, 2.0)
BAD = float32(INF, -INF, NAN)  # for cases that are not about one kind of non-finite value


def _one(expected: bool, name: str, catches: str, tree: Any, *needs: str) -> Case:
    dtypes = {leaf.dtype for leaf in arrays(tree)}
    return named(name, 1, catches, partial(_check, expected=expected, tree=tree), {*needs, *dtypes & {"float16"}})


finite = partial(_one, True)  # makes a case with a finite tree
overflow = partial(_one, False)  # makes a case with an overflow


def _check(subject: Subject, expected: bool, tree: Any) -> None:
    got = subject.all_finite(tree)
    subject.expect(got == expected, f"all_finite: expected {expected}, got {got}")


CASES = (
    *under(
        "OVERFLOW-all-finite",
        overflow(
            "finds-overflows-everywhere",
            "narrow counter: a 16-bit count of non-finite values wraps to zero",
            [Bits("float16", (2**16,), (0x7E00, 0xFC00) * 2**15)],
        ),
        checks_drawn_trees,
    ),
    finite("OVERFLOW-answer/the-answer-is-one-bool", "wrong result: a flag for each array, or a number", [GOOD, GOOD]),
    *under(
        "OVERFLOW-elementwise",
        finite("a-sum-beyond-float16-is-finite", "sum in float16: a sum of two is infinite", [float16(60000.0, 60000.0)]),
        finite("a-sum-beyond-float32-is-finite", "sum in float32: a sum of two is infinite", [float32(2.0**127, 2.0**127)]),
        finite(
            "a-range-beyond-float32-is-finite",
            "norm or range: the square of a large number, or the difference of two, is infinite",
            [float32(2.0**127, -(2.0**127))],
        ),
        overflow("infinities-do-not-cancel", "sum: inf and -inf add up to NaN, which is not infinite", [float32(INF, -INF)]),
    ),
    *under(
        "OVERFLOW-edges",
        finite("the-largest-float16-is-finite", "wrong limit: 65504 counts as infinite", [float16(65504.0), float16(-65504.0)]),
        finite(
            "the-largest-float32-is-finite", "wrong limit: the largest float32 counts as infinite", [float32(2.0**128 - 2.0**104)]
        ),
        finite("the-largest-float64-is-finite", "single precision: infinite in float32", [float64(2.0**1023 * (2 - 2.0**-52))]),
        finite(
            "the-largest-bfloat16-is-finite",
            "wrong format: the number is infinite in float16",
            [bfloat16(2.0**127 * (2 - 2.0**-7))],
            "bfloat16",
        ),
        finite("subnormals-are-finite", "normal only: subnormals are an overflow", [float16(2.0**-24), float32(-(2.0**-149))]),
    ),
    *under(
        "OVERFLOW-integers",
        finite(
            "integers-are-finite", "float16: a large integer becomes infinite", [array("int32", [2**31 - 1]), GOOD], "integers"
        ),
        finite("bools-are-finite", "truth value: False counts as an overflow", [array("bool", [True, False]), GOOD], "integers"),
        overflow(
            "integers-hide-no-overflow",
            "single dtype: a NaN next to integers becomes an integer",
            [array("int32", [1, 2, 3]), BAD, BAD],
            "integers",
        ),
    ),
    *under(
        "OVERFLOW-complex",
        overflow(
            "real-parts-are-checked",
            "missing part: only the imaginary part is checked",
            [complex64(complex(NAN, 1.0), complex(NAN, 1.0))],
            "complex",
        ),
        overflow(
            "imaginary-parts-are-checked",
            "missing part: only the real part is checked",
            [complex64(complex(1.0, INF), complex(1.0, INF))],
            "complex",
        ),
        finite(
            "a-large-complex-is-finite",
            "magnitude: two finite parts can have an infinite magnitude",
            [complex64(complex(2.0**127.75, 2.0**127.75))],
            "complex",
        ),
    ),
    *under(
        "OVERFLOW-empty",
        finite(
            "an-array-without-elements-is-finite",
            "empty reduction: an array without elements raises an error, or counts as an overflow",
            [array("float32", [], shape=(0, 3)), GOOD],
        ),
        overflow(
            "an-array-without-elements-hides-nothing",
            "early exit: arrays after the empty one are not checked",
            [array("float32", [], shape=(0, 3)), BAD, BAD],
        ),
        finite("an-empty-tree-is-finite", "empty tree: no gradients raise an error, or count as an overflow", [], "empty"),
    ),
    *under(
        "OVERFLOW-none",
        finite("none-is-finite", "missing gradient: None raises an error, or counts as an overflow", [None, GOOD], "none"),
        overflow("none-hides-no-overflow", "early exit: arrays after a None are not checked", [None, BAD, BAD], "none"),
    ),
)
