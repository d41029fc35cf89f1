"""Chapter 20, overflow: whether a tree is finite."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits
from ..model.case import Case, case, named
from ..model.subject import Subject
from ..oracle.tensors import array, bfloat16, complex64, float16, float32, float64

INF, NAN = math.inf, math.nan
GOOD = float32(1.5, -3.0, 2.0)
BAD = float32(INF, -INF, NAN)  # whoever misses one kind alone sees the others
MANY = 70_000  # more than a block of any kernel


def _one(wanted: bool, name: str, catches: str, *needs: str, tree: Any) -> Case:
    return named(name, 1, catches, partial(_ask, wanted=wanted, trees=(tree,)), needs)


finite = partial(_one, True)  # cases that ask of a tree that is finite
overflow = partial(_one, False)  # and of one that is not


def asked(name: str, catches: str, *trees: Any, wanted: bool) -> Case:
    """A case that asks of several trees, one after another, and looks at the last answer."""
    return named(name, 1, catches, partial(_ask, wanted=wanted, trees=trees))


def _ask(subject: Subject, wanted: bool, trees: tuple[Any, ...]) -> None:
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
    overflow(
        "OVERFLOW-all-finite/finds-one-infinity",
        "half done: the least element is looked at, or both ends, or one infinity is put up with",
        tree=[float32(1.0, 1.0, INF, 1.0)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-negative-infinity",
        "half done: the greatest element is looked at, and the least is not",
        tree=[float32(-INF, -INF)],
    ),
    overflow("OVERFLOW-all-finite/finds-nan", "a comparison: NaN is above no limit", tree=[float32(NAN, NAN)]),
    overflow(
        "OVERFLOW-all-finite/finds-nan-with-a-sign",
        "bits as signed integers: a NaN with a sign is a small one",
        tree=[Bits("float32", (2,), (0xFFC00000, 0xFFC00000))],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-a-signalling-nan",
        "one NaN of many: only the quiet one, or only its first bit, is known",
        tree=[Bits("float32", (2,), (0x7F800001, 0xFF800001))],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-infinity-in-float16",
        "half done: the least float16 is looked at, and the greatest is not",
        tree=[float16(INF, INF)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-negative-infinity-in-float16",
        "half done: the greatest float16 is looked at, and the least is not",
        tree=[float16(-INF, -INF)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-nan-in-float16",
        "half done: what has the bits of infinity, and nothing beyond",
        tree=[float16(NAN, NAN)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-infinities-in-float64",
        "left out: float64 is no dtype of the kernel",
        tree=[float64(INF, -INF)],
    ),
    overflow("OVERFLOW-all-finite/finds-nan-in-float64", "half done: NaN is above no limit", tree=[float64(NAN, NAN)]),
    overflow(
        "OVERFLOW-all-finite/finds-infinities-in-bfloat16",
        "left out: NumPy does not count bfloat16 among the floats",
        "bfloat16",
        tree=[bfloat16(INF, -INF)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-nan-in-bfloat16",
        "half done: what has the bits of infinity, and nothing beyond",
        "bfloat16",
        tree=[bfloat16(NAN, NAN)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-first-elements",
        "off by one: it begins with the second element",
        tree=_each("float32", 0, 2),
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-last-elements",
        "off by one: it ends before the last element",
        tree=_each("float32", 2, 0),
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-the-last-block",
        "left out: a last block that is not full",
        tree=[Bits("float32", (MANY,), (0x3F800000,) * (MANY - 3) + BAD.bits)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-where-a-block-ends",
        "off by one: the last element of every block is left out",
        tree=_each("float32", 1023, 1),
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-everywhere",
        "too narrow: a count of what is not finite comes back to zero",
        tree=[Bits("float16", (2**16,), (0x7E00, 0xFC00) * 2**15)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-a-scalar",
        "left out: an array of shape () has no elements to go through",
        tree=[array("float32", bad) for bad in (INF, -INF, NAN)],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-a-matrix",
        "one axis: only the first row, or the first column, is looked at",
        tree=[array("float32", [[1.0, 1.0, 1.0, 1.0], [1.0, INF, -INF, NAN]])],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-the-first-array",
        "the last one wins: each array overwrites the flag",
        tree=[BAD, GOOD],
    ),
    overflow(
        "OVERFLOW-all-finite/finds-overflows-in-the-last-array",
        "the first one wins: the others are not looked at",
        tree=[GOOD, BAD],
    ),
    overflow("OVERFLOW-all-finite/finds-overflows-in-dicts", "left out: an inner dict", tree=[{"a": {"b": BAD}}]),
    overflow("OVERFLOW-all-finite/finds-overflows-in-tuples", "left out: a tuple in a list", tree=[(BAD,)]),
    asked(
        "OVERFLOW-all-finite/finite-after-an-overflow",
        "sticky: one overflow makes every later step one",
        [BAD],
        [GOOD],
        wanted=True,
    ),
    asked(
        "OVERFLOW-all-finite/overflow-after-a-finite-one",
        "warmed up: after a finite step nobody looks any more",
        [GOOD],
        [BAD],
        wanted=False,
    ),
    asked(
        "OVERFLOW-all-finite/overflow-a-second-time",
        "told once: an overflow that was reported is not found again",
        [BAD],
        [BAD],
        wanted=False,
    ),
    finite(
        "OVERFLOW-answer/the-answer-is-one-bool",
        "another form: an answer for each array, or a number in its place",
        tree=[GOOD, GOOD],
    ),
    all_finite_leaves_its_input_alone,
    finite("OVERFLOW-all-finite/zeros-are-finite", "a division: zero by itself is NaN", tree=[float32(0.0, -0.0)]),
    finite(
        "OVERFLOW-all-finite/leaves-of-each-dtype-are-finite",
        "one dtype for all: a float32 beside a float16 is beyond its range",
        tree=[float16(1.5), float32(1e6)],
    ),
    finite(
        "OVERFLOW-elementwise/a-sum-beyond-float16-is-finite",
        "a sum in float16: two large numbers are infinite",
        tree=[float16(60000.0, 60000.0)],
    ),
    finite(
        "OVERFLOW-elementwise/a-sum-beyond-float32-is-finite",
        "a sum in float32: two large numbers are infinite",
        tree=[float32(2.0**127, 2.0**127)],
    ),
    finite(
        "OVERFLOW-elementwise/a-range-beyond-float32-is-finite",
        "a norm or a range: the square of a large number is infinite, or the way from one to another",
        tree=[float32(2.0**127, -(2.0**127))],
    ),
    overflow(
        "OVERFLOW-elementwise/infinities-do-not-cancel",
        "a sum: inf and -inf make NaN, which is not infinite",
        tree=[float32(INF, -INF)],
    ),
    finite(
        "OVERFLOW-edges/the-largest-float16-is-finite",
        "a limit: 65504 counts as infinite",
        tree=[float16(65504.0), float16(-65504.0)],
    ),
    finite(
        "OVERFLOW-edges/the-largest-float32-is-finite",
        "a limit: float32 ends before its largest number",
        tree=[float32(2.0**128 - 2.0**104)],
    ),
    finite(
        "OVERFLOW-edges/the-largest-float64-is-finite",
        "single precision: beyond float32 everything is infinite",
        tree=[float64(2.0**1023 * (2 - 2.0**-52))],
    ),
    finite(
        "OVERFLOW-edges/the-largest-bfloat16-is-finite",
        "another format: in float16 it is infinite",
        "bfloat16",
        tree=[bfloat16(2.0**127 * (2 - 2.0**-7))],
    ),
    finite(
        "OVERFLOW-edges/subnormals-are-finite",
        "normal alone: a number that is too small to be normal is not counted as finite",
        tree=[float16(2.0**-24), float32(-(2.0**-149))],
    ),
    finite(
        "OVERFLOW-integers/integers-are-finite",
        "in float16: a large integer is infinite",
        "integers",
        tree=[array("int32", [2**31 - 1]), GOOD],
    ),
    finite(
        "OVERFLOW-integers/bools-are-finite",
        "truth: False counts as an overflow",
        "integers",
        tree=[array("bool", [True, False]), GOOD],
    ),
    overflow(
        "OVERFLOW-integers/integers-hide-no-overflow",
        "one dtype for all: beside integers a NaN is one",
        "integers",
        tree=[array("int32", [1, 2, 3]), BAD, BAD],
    ),
    overflow(
        "OVERFLOW-complex/real-parts-are-looked-at",
        "half done: only the imaginary part",
        "complex",
        tree=[complex64(complex(NAN, 1.0), complex(NAN, 1.0))],
    ),
    overflow(
        "OVERFLOW-complex/imaginary-parts-are-looked-at",
        "half done: only the real part",
        "complex",
        tree=[complex64(complex(1.0, INF), complex(1.0, INF))],
    ),
    finite(
        "OVERFLOW-complex/a-large-complex-is-finite",
        "a magnitude: two finite parts have an infinite one",
        "complex",
        tree=[complex64(complex(2.0**127.75, 2.0**127.75))],
    ),
    finite(
        "OVERFLOW-empty/an-array-without-elements-is-finite",
        "nothing to reduce: it raises, or is an overflow",
        tree=[array("float32", [], shape=(0, 3)), GOOD],
    ),
    overflow(
        "OVERFLOW-empty/an-array-without-elements-hides-nothing",
        "early end: what comes after it is not looked at",
        tree=[array("float32", [], shape=(0, 3)), BAD, BAD],
    ),
    finite(
        "OVERFLOW-empty/an-empty-tree-is-finite",
        "nothing to check: no gradients are an overflow, or an error",
        "empty",
        tree=[],
    ),
    finite("OVERFLOW-none/none-is-finite", "no gradient: None raises, or is an overflow", "none", tree=[None, GOOD]),
    overflow(
        "OVERFLOW-none/none-hides-no-overflow",
        "early end: what comes after a None is not looked at",
        "none",
        tree=[None, BAD, BAD],
    ),
)
