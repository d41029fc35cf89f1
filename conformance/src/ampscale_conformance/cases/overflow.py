"""Chapter 20, overflow: whether a tree contains an infinity or a NaN."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits
from ..model.case import Case, case, named, under
from ..model.subject import Subject
from ..oracle.tensors import array, bfloat16, complex64, float16, float32, float64

INF, NAN = math.inf, math.nan
GOOD = float32(1.5, -3.0, 2.0)
BAD = float32(INF, -INF, NAN)  # for cases that are not about one kind of non-finite value
MANY = 70_000  # more than a block of a kernel


def _one(expected: bool, name: str, catches: str, tree: Any, *needs: str, before: Any = None) -> Case:
    run = partial(check_all_finite, expected=expected, trees=[tree] if before is None else [before, tree])
    return named(name, 1, catches, run, needs)


finite = partial(_one, True)  # makes a case with a finite tree, checked after the tree *before*
overflow = partial(_one, False)  # makes a case with an overflow


def check_all_finite(subject: Subject, expected: bool, trees: list[Any]) -> None:
    """Call `all_finite` on each tree, and check the last result."""
    got = [subject.all_finite(tree) for tree in trees][-1]
    subject.expect(got == expected, f"all_finite: expected {expected}, got {got}")


def _each(dtype: str, before: int, after: int) -> list[Bits]:
    """Return three arrays, each with one kind of non-finite value between so many ones before and after it."""
    return [array(dtype, [1.0] * before + [bad] + [1.0] * after) for bad in (INF, -INF, NAN)]


@case("OVERFLOW-all-finite", 1, "change in place: the check changes the gradients")
def all_finite_leaves_its_input_alone(subject: Subject) -> None:
    """The arguments are compared after the call."""
    arrays = subject.to_arrays([GOOD])
    subject.call("all_finite", arrays)
    subject.expect_same(subject.to_bits(arrays, "the input"), [GOOD], "the input of all_finite")


CASES = (
    *under(
        "OVERFLOW-all-finite",
        overflow(
            "finds-one-infinity",
            "incomplete check: only the minimum is checked, or both ends, or one infinity is accepted",
            [float32(1.0, 1.0, INF, 1.0)],
        ),
        overflow("finds-negative-infinity", "incomplete check: only the maximum is checked", [float32(-INF, -INF)]),
        overflow("finds-nan", "comparison: NaN exceeds no limit", [float32(NAN, NAN)]),
        overflow(
            "finds-nan-with-a-sign",
            "signed bits: a NaN with a sign bit is a small signed integer",
            [Bits("float32", (2,), (0xFFC00000, 0xFFC00000))],
        ),
        overflow(
            "finds-a-signalling-nan",
            "single pattern: only the quiet NaN, or only its first bit, is detected",
            [Bits("float32", (2,), (0x7F800001, 0xFF800001))],
        ),
        overflow(
            "finds-infinity-in-float16", "incomplete check: only the minimum of float16 values is checked", [float16(INF, INF)]
        ),
        overflow("finds-negative-infinity-in-float16", "incomplete check: only the maximum is checked", [float16(-INF, -INF)]),
        overflow("finds-nan-in-float16", "incomplete check: only the bits of infinity are detected", [float16(NAN, NAN)]),
        overflow("finds-infinities-in-float64", "skipped dtype: the kernel does not support float64", [float64(INF, -INF)]),
        overflow("finds-nan-in-float64", "comparison: NaN exceeds no limit", [float64(NAN, NAN)]),
        overflow("finds-infinities-in-bfloat16", "skipped dtype: NumPy has no bfloat16", [bfloat16(INF, -INF)], "bfloat16"),
        overflow(
            "finds-nan-in-bfloat16", "incomplete check: only the bits of infinity are detected", [bfloat16(NAN, NAN)], "bfloat16"
        ),
        overflow(
            "finds-overflows-in-first-elements", "off-by-one: the check starts at the second element", _each("float32", 0, 2)
        ),
        overflow(
            "finds-overflows-in-last-elements", "off-by-one: the check ends before the last element", _each("float32", 2, 0)
        ),
        overflow(
            "finds-overflows-in-the-last-block",
            "skipped block: an incomplete last block is not checked",
            [Bits("float32", (MANY,), (0x3F800000,) * (MANY - 3) + BAD.bits)],
        ),
        overflow("finds-overflows-where-a-block-ends", "off-by-one: the end of a block is skipped", _each("float32", 1023, 1)),
        overflow(
            "finds-overflows-everywhere",
            "narrow counter: a 16-bit count of non-finite values wraps to zero",
            [Bits("float16", (2**16,), (0x7E00, 0xFC00) * 2**15)],
        ),
        overflow(
            "finds-overflows-in-a-scalar",
            "skipped leaf: an array of shape () is not checked",
            [array("float32", bad) for bad in (INF, -INF, NAN)],
        ),
        overflow(
            "finds-overflows-in-a-matrix",
            "single axis: only the first row or the first column is checked",
            [array("float32", [[1.0, 1.0, 1.0, 1.0], [1.0, INF, -INF, NAN]])],
        ),
        overflow("finds-overflows-in-the-first-array", "overwritten flag: only the last array counts", [BAD, GOOD]),
        overflow("finds-overflows-in-the-last-array", "early exit: only the first array is checked", [GOOD, BAD]),
        overflow("finds-overflows-in-dicts", "skipped leaf: an inner dict is not checked", [{"a": {"b": BAD}}]),
        overflow("finds-overflows-in-tuples", "skipped leaf: a tuple in a list is not checked", [(BAD,)]),
        finite("finite-after-an-overflow", "sticky flag: after one overflow, every later step is one", [GOOD], before=[BAD]),
        overflow("overflow-after-a-finite-one", "cached flag: after a finite step, the check is skipped", [BAD], before=[GOOD]),
        overflow("overflow-a-second-time", "single report: a second overflow is not reported", [BAD], before=[BAD]),
    ),
    finite("OVERFLOW-answer/the-answer-is-one-bool", "wrong result: a flag for each array, or a number", [GOOD, GOOD]),
    *under(
        "OVERFLOW-all-finite",
        all_finite_leaves_its_input_alone,
        finite("zeros-are-finite", "division: zero divided by itself is NaN", [float32(0.0, -0.0)]),
        finite("leaves-of-each-dtype-are-finite", "single dtype: 1e6 is infinite in float16", [float16(1.5), float32(1e6)]),
    ),
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
