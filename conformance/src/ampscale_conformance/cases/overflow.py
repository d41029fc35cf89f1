"""Chapter 20, overflow: whether a tree is finite."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits
from ..model.case import Case, case, named, under
from ..model.subject import Subject
from ..oracle.tensors import array, bfloat16, complex64, float16, float32, float64

INF, NAN = math.inf, math.nan
GOOD = float32(1.5, -3.0, 2.0)
BAD = float32(INF, -INF, NAN)  # whoever misses one kind alone sees the others
MANY = 70_000  # more than a block of any kernel


def _one(wanted: bool, name: str, catches: str, tree: Any, *needs: str, before: Any = None) -> Case:
    run = partial(ask, wanted=wanted, trees=[tree] if before is None else [before, tree])
    return named(name, 1, catches, run, needs)


finite = partial(_one, True)  # cases that ask of a tree that is finite; of another one *before* it
overflow = partial(_one, False)  # and of one that is not


def ask(subject: Subject, wanted: bool, trees: list[Any]) -> None:
    """Asks of each tree, and looks at the last answer."""
    got = [subject.all_finite(tree) for tree in trees][-1]
    subject.expect(got == wanted, f"all_finite: wanted {wanted}, got {got}")


def _each(dtype: str, before: int, after: int) -> list[Bits]:
    """For each kind of what is not finite an array in which it is alone, with so many ones before and after it."""
    return [array(dtype, [1.0] * before + [bad] + [1.0] * after) for bad in (INF, -INF, NAN)]


@case("OVERFLOW-all-finite", 1, "destructive: the look itself changes the gradients")
def all_finite_leaves_its_input_alone(subject: Subject) -> None:
    """The given arrays after the call."""
    given = subject.made([GOOD])
    subject.call("all_finite", given)
    subject.expect_same(subject.read(given, "the input"), [GOOD], "the input of all_finite")


CASES = (
    *under(
        "OVERFLOW-all-finite",
        overflow(
            "finds-one-infinity",
            "half done: the least element is looked at, or both ends, or one infinity is put up with",
            [float32(1.0, 1.0, INF, 1.0)],
        ),
        overflow(
            "finds-negative-infinity", "half done: the greatest element is looked at, and the least is not", [float32(-INF, -INF)]
        ),
        overflow("finds-nan", "a comparison: NaN is above no limit", [float32(NAN, NAN)]),
        overflow(
            "finds-nan-with-a-sign",
            "bits as signed integers: a NaN with a sign is a small one",
            [Bits("float32", (2,), (0xFFC00000, 0xFFC00000))],
        ),
        overflow(
            "finds-a-signalling-nan",
            "one NaN of many: only the quiet one, or only its first bit, is known",
            [Bits("float32", (2,), (0x7F800001, 0xFF800001))],
        ),
        overflow(
            "finds-infinity-in-float16", "half done: the least float16 is looked at, and the greatest is not", [float16(INF, INF)]
        ),
        overflow(
            "finds-negative-infinity-in-float16",
            "half done: the greatest float16 is looked at, and the least is not",
            [float16(-INF, -INF)],
        ),
        overflow("finds-nan-in-float16", "half done: what has the bits of infinity, and nothing beyond", [float16(NAN, NAN)]),
        overflow("finds-infinities-in-float64", "left out: float64 is no dtype of the kernel", [float64(INF, -INF)]),
        overflow("finds-nan-in-float64", "half done: NaN is above no limit", [float64(NAN, NAN)]),
        overflow(
            "finds-infinities-in-bfloat16",
            "left out: NumPy does not count bfloat16 among the floats",
            [bfloat16(INF, -INF)],
            "bfloat16",
        ),
        overflow(
            "finds-nan-in-bfloat16",
            "half done: what has the bits of infinity, and nothing beyond",
            [bfloat16(NAN, NAN)],
            "bfloat16",
        ),
        overflow("finds-overflows-in-first-elements", "off by one: it begins with the second element", _each("float32", 0, 2)),
        overflow("finds-overflows-in-last-elements", "off by one: it ends before the last element", _each("float32", 2, 0)),
        overflow(
            "finds-overflows-in-the-last-block",
            "left out: a last block that is not full",
            [Bits("float32", (MANY,), (0x3F800000,) * (MANY - 3) + BAD.bits)],
        ),
        overflow(
            "finds-overflows-where-a-block-ends",
            "off by one: the last element of every block is left out",
            _each("float32", 1023, 1),
        ),
        overflow(
            "finds-overflows-everywhere",
            "too narrow: a count of what is not finite comes back to zero",
            [Bits("float16", (2**16,), (0x7E00, 0xFC00) * 2**15)],
        ),
        overflow(
            "finds-overflows-in-a-scalar",
            "left out: an array of shape () has no elements to go through",
            [array("float32", bad) for bad in (INF, -INF, NAN)],
        ),
        overflow(
            "finds-overflows-in-a-matrix",
            "one axis: only the first row, or the first column, is looked at",
            [array("float32", [[1.0, 1.0, 1.0, 1.0], [1.0, INF, -INF, NAN]])],
        ),
        overflow("finds-overflows-in-the-first-array", "the last one wins: each array overwrites the flag", [BAD, GOOD]),
        overflow("finds-overflows-in-the-last-array", "the first one wins: the others are not looked at", [GOOD, BAD]),
        overflow("finds-overflows-in-dicts", "left out: an inner dict", [{"a": {"b": BAD}}]),
        overflow("finds-overflows-in-tuples", "left out: a tuple in a list", [(BAD,)]),
        finite("finite-after-an-overflow", "sticky: one overflow makes every later step one", [GOOD], before=[BAD]),
        overflow("overflow-after-a-finite-one", "warmed up: after a finite step nobody looks any more", [BAD], before=[GOOD]),
        overflow("overflow-a-second-time", "told once: an overflow that was reported is not found again", [BAD], before=[BAD]),
    ),
    finite(
        "OVERFLOW-answer/the-answer-is-one-bool",
        "another form: an answer for each array, or a number in its place",
        [GOOD, GOOD],
    ),
    *under(
        "OVERFLOW-all-finite",
        all_finite_leaves_its_input_alone,
        finite("zeros-are-finite", "a division: zero by itself is NaN", [float32(0.0, -0.0)]),
        finite(
            "leaves-of-each-dtype-are-finite",
            "one dtype for all: a float32 beside a float16 is beyond its range",
            [float16(1.5), float32(1e6)],
        ),
    ),
    *under(
        "OVERFLOW-elementwise",
        finite("a-sum-beyond-float16-is-finite", "a sum in float16: two large numbers are infinite", [float16(60000.0, 60000.0)]),
        finite(
            "a-sum-beyond-float32-is-finite", "a sum in float32: two large numbers are infinite", [float32(2.0**127, 2.0**127)]
        ),
        finite(
            "a-range-beyond-float32-is-finite",
            "a norm or a range: the square of a large number is infinite, or the way from one to another",
            [float32(2.0**127, -(2.0**127))],
        ),
        overflow("infinities-do-not-cancel", "a sum: inf and -inf make NaN, which is not infinite", [float32(INF, -INF)]),
    ),
    *under(
        "OVERFLOW-edges",
        finite("the-largest-float16-is-finite", "a limit: 65504 counts as infinite", [float16(65504.0), float16(-65504.0)]),
        finite(
            "the-largest-float32-is-finite", "a limit: float32 ends before its largest number", [float32(2.0**128 - 2.0**104)]
        ),
        finite(
            "the-largest-float64-is-finite",
            "single precision: beyond float32 everything is infinite",
            [float64(2.0**1023 * (2 - 2.0**-52))],
        ),
        finite(
            "the-largest-bfloat16-is-finite",
            "another format: in float16 it is infinite",
            [bfloat16(2.0**127 * (2 - 2.0**-7))],
            "bfloat16",
        ),
        finite(
            "subnormals-are-finite",
            "normal alone: a number that is too small to be normal is not counted as finite",
            [float16(2.0**-24), float32(-(2.0**-149))],
        ),
    ),
    *under(
        "OVERFLOW-integers",
        finite("integers-are-finite", "in float16: a large integer is infinite", [array("int32", [2**31 - 1]), GOOD], "integers"),
        finite("bools-are-finite", "truth: False counts as an overflow", [array("bool", [True, False]), GOOD], "integers"),
        overflow(
            "integers-hide-no-overflow",
            "one dtype for all: beside integers a NaN is one",
            [array("int32", [1, 2, 3]), BAD, BAD],
            "integers",
        ),
    ),
    *under(
        "OVERFLOW-complex",
        overflow(
            "real-parts-are-looked-at",
            "half done: only the imaginary part",
            [complex64(complex(NAN, 1.0), complex(NAN, 1.0))],
            "complex",
        ),
        overflow(
            "imaginary-parts-are-looked-at",
            "half done: only the real part",
            [complex64(complex(1.0, INF), complex(1.0, INF))],
            "complex",
        ),
        finite(
            "a-large-complex-is-finite",
            "a magnitude: two finite parts have an infinite one",
            [complex64(complex(2.0**127.75, 2.0**127.75))],
            "complex",
        ),
    ),
    *under(
        "OVERFLOW-empty",
        finite(
            "an-array-without-elements-is-finite",
            "nothing to reduce: it raises, or is an overflow",
            [array("float32", [], shape=(0, 3)), GOOD],
        ),
        overflow(
            "an-array-without-elements-hides-nothing",
            "early end: what comes after it is not looked at",
            [array("float32", [], shape=(0, 3)), BAD, BAD],
        ),
        finite("an-empty-tree-is-finite", "nothing to check: no gradients are an overflow, or an error", [], "empty"),
    ),
    *under(
        "OVERFLOW-none",
        finite("none-is-finite", "no gradient: None raises, or is an overflow", [None, GOOD], "none"),
        overflow("none-hides-no-overflow", "early end: what comes after a None is not looked at", [None, BAD, BAD], "none"),
    ),
)
