"""Chapter 20, overflow: whether a tree is finite."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits
from ..model.case import Case, case
from ..model.subject import Subject
from ..oracle.tensors import array

INF, NAN = math.inf, math.nan
GOOD = array("float32", [1.5, -3.0, 2.0])
BAD = array("float32", [INF, -INF, NAN])  # whoever misses one kind alone sees the others
MANY = 70_000  # more than a block of any kernel


def finite(id: str, clause: str, catches: str, *needs: str, tree: Any) -> Case:
    """A case that asks of a tree that is finite."""
    return Case(id, clause, 1, catches, partial(_ask, wanted=True, trees=(tree,)), frozenset(needs))


def overflow(id: str, clause: str, catches: str, *needs: str, tree: Any) -> Case:
    """A case that asks of a tree that is not."""
    return Case(id, clause, 1, catches, partial(_ask, wanted=False, trees=(tree,)), frozenset(needs))


def asked(id: str, clause: str, catches: str, *trees: Any, wanted: bool) -> Case:
    """A case that asks of several trees, one after another, and looks at the last answer."""
    return Case(id, clause, 1, catches, partial(_ask, wanted=wanted, trees=trees))


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
        "finds-one-infinity",
        "OVERFLOW-all-finite",
        "half done: the least element is looked at, or both ends, or one infinity is put up with",
        tree=[array("float32", [1.0, 1.0, INF, 1.0])],
    ),
    overflow(
        "finds-negative-infinity",
        "OVERFLOW-all-finite",
        "half done: the greatest element is looked at, and the least is not",
        tree=[array("float32", [-INF, -INF])],
    ),
    overflow("finds-nan", "OVERFLOW-all-finite", "a comparison: NaN is above no limit", tree=[array("float32", [NAN, NAN])]),
    overflow(
        "finds-nan-with-a-sign",
        "OVERFLOW-all-finite",
        "bits as signed integers: a NaN with a sign is a small one",
        tree=[Bits("float32", (2,), (0xFFC00000, 0xFFC00000))],
    ),
    overflow(
        "finds-a-signalling-nan",
        "OVERFLOW-all-finite",
        "one NaN of many: only the quiet one, or only its first bit, is known",
        tree=[Bits("float32", (2,), (0x7F800001, 0xFF800001))],
    ),
    overflow(
        "finds-infinity-in-float16",
        "OVERFLOW-all-finite",
        "half done: the least float16 is looked at, and the greatest is not",
        tree=[array("float16", [INF, INF])],
    ),
    overflow(
        "finds-negative-infinity-in-float16",
        "OVERFLOW-all-finite",
        "half done: the greatest float16 is looked at, and the least is not",
        tree=[array("float16", [-INF, -INF])],
    ),
    overflow(
        "finds-nan-in-float16",
        "OVERFLOW-all-finite",
        "half done: what has the bits of infinity, and nothing beyond",
        tree=[array("float16", [NAN, NAN])],
    ),
    overflow(
        "finds-infinities-in-float64",
        "OVERFLOW-all-finite",
        "left out: float64 is no dtype of the kernel",
        tree=[array("float64", [INF, -INF])],
    ),
    overflow(
        "finds-nan-in-float64", "OVERFLOW-all-finite", "half done: NaN is above no limit", tree=[array("float64", [NAN, NAN])]
    ),
    overflow(
        "finds-infinities-in-bfloat16",
        "OVERFLOW-all-finite",
        "left out: NumPy does not count bfloat16 among the floats",
        "bfloat16",
        tree=[array("bfloat16", [INF, -INF])],
    ),
    overflow(
        "finds-nan-in-bfloat16",
        "OVERFLOW-all-finite",
        "half done: what has the bits of infinity, and nothing beyond",
        "bfloat16",
        tree=[array("bfloat16", [NAN, NAN])],
    ),
    overflow(
        "finds-overflows-in-first-elements",
        "OVERFLOW-all-finite",
        "off by one: it begins with the second element",
        tree=_each("float32", 0, 2),
    ),
    overflow(
        "finds-overflows-in-last-elements",
        "OVERFLOW-all-finite",
        "off by one: it ends before the last element",
        tree=_each("float32", 2, 0),
    ),
    overflow(
        "finds-overflows-in-the-last-block",
        "OVERFLOW-all-finite",
        "left out: a last block that is not full",
        tree=[Bits("float32", (MANY,), (0x3F800000,) * (MANY - 3) + BAD.bits)],
    ),
    overflow(
        "finds-overflows-where-a-block-ends",
        "OVERFLOW-all-finite",
        "off by one: the last element of every block is left out",
        tree=_each("float32", 1023, 1),
    ),
    overflow(
        "finds-overflows-everywhere",
        "OVERFLOW-all-finite",
        "too narrow: a count of what is not finite comes back to zero",
        tree=[Bits("float16", (2**16,), (0x7E00, 0xFC00) * 2**15)],
    ),
    overflow(
        "finds-overflows-in-a-scalar",
        "OVERFLOW-all-finite",
        "left out: an array of shape () has no elements to go through",
        tree=[array("float32", bad) for bad in (INF, -INF, NAN)],
    ),
    overflow(
        "finds-overflows-in-a-matrix",
        "OVERFLOW-all-finite",
        "one axis: only the first row, or the first column, is looked at",
        tree=[array("float32", [[1.0, 1.0, 1.0, 1.0], [1.0, INF, -INF, NAN]])],
    ),
    overflow(
        "finds-overflows-in-the-first-array",
        "OVERFLOW-all-finite",
        "the last one wins: each array overwrites the flag",
        tree=[BAD, GOOD],
    ),
    overflow(
        "finds-overflows-in-the-last-array",
        "OVERFLOW-all-finite",
        "the first one wins: the others are not looked at",
        tree=[GOOD, BAD],
    ),
    overflow("finds-overflows-in-dicts", "OVERFLOW-all-finite", "left out: an inner dict", tree=[{"a": {"b": BAD}}]),
    overflow("finds-overflows-in-tuples", "OVERFLOW-all-finite", "left out: a tuple in a list", tree=[(BAD,)]),
    asked(
        "finite-after-an-overflow",
        "OVERFLOW-all-finite",
        "sticky: one overflow makes every later step one",
        [BAD],
        [GOOD],
        wanted=True,
    ),
    asked(
        "overflow-after-a-finite-one",
        "OVERFLOW-all-finite",
        "warmed up: after a finite step nobody looks any more",
        [GOOD],
        [BAD],
        wanted=False,
    ),
    asked(
        "overflow-a-second-time",
        "OVERFLOW-all-finite",
        "told once: an overflow that was reported is not found again",
        [BAD],
        [BAD],
        wanted=False,
    ),
    finite(
        "the-answer-is-one-bool",
        "OVERFLOW-answer",
        "another form: an answer for each array, or a number in its place",
        tree=[GOOD, GOOD],
    ),
    all_finite_leaves_its_input_alone,
    finite("zeros-are-finite", "OVERFLOW-all-finite", "a division: zero by itself is NaN", tree=[array("float32", [0.0, -0.0])]),
    finite(
        "leaves-of-each-dtype-are-finite",
        "OVERFLOW-all-finite",
        "one dtype for all: a float32 beside a float16 is beyond its range",
        tree=[array("float16", [1.5]), array("float32", [1e6])],
    ),
    finite(
        "a-sum-beyond-float16-is-finite",
        "OVERFLOW-elementwise",
        "a sum in float16: two large numbers are infinite",
        tree=[array("float16", [60000.0, 60000.0])],
    ),
    finite(
        "a-sum-beyond-float32-is-finite",
        "OVERFLOW-elementwise",
        "a sum in float32: two large numbers are infinite",
        tree=[array("float32", [2.0**127, 2.0**127])],
    ),
    finite(
        "a-range-beyond-float32-is-finite",
        "OVERFLOW-elementwise",
        "a norm or a range: the square of a large number is infinite, or the way from one to another",
        tree=[array("float32", [2.0**127, -(2.0**127)])],
    ),
    overflow(
        "infinities-do-not-cancel",
        "OVERFLOW-elementwise",
        "a sum: inf and -inf make NaN, which is not infinite",
        tree=[array("float32", [INF, -INF])],
    ),
    finite(
        "the-largest-float16-is-finite",
        "OVERFLOW-edges",
        "a limit: 65504 counts as infinite",
        tree=[array("float16", [65504.0]), array("float16", [-65504.0])],
    ),
    finite(
        "the-largest-float32-is-finite",
        "OVERFLOW-edges",
        "a limit: float32 ends before its largest number",
        tree=[array("float32", [2.0**128 - 2.0**104])],
    ),
    finite(
        "the-largest-float64-is-finite",
        "OVERFLOW-edges",
        "single precision: beyond float32 everything is infinite",
        tree=[array("float64", [2.0**1023 * (2 - 2.0**-52)])],
    ),
    finite(
        "the-largest-bfloat16-is-finite",
        "OVERFLOW-edges",
        "another format: in float16 it is infinite",
        "bfloat16",
        tree=[array("bfloat16", [2.0**127 * (2 - 2.0**-7)])],
    ),
    finite(
        "subnormals-are-finite",
        "OVERFLOW-edges",
        "normal alone: a number that is too small to be normal is not counted as finite",
        tree=[array("float16", [2.0**-24]), array("float32", [-(2.0**-149)])],
    ),
    finite(
        "integers-are-finite",
        "OVERFLOW-integers",
        "in float16: a large integer is infinite",
        "integers",
        tree=[array("int32", [2**31 - 1]), GOOD],
    ),
    finite(
        "bools-are-finite",
        "OVERFLOW-integers",
        "truth: False counts as an overflow",
        "integers",
        tree=[array("bool", [True, False]), GOOD],
    ),
    overflow(
        "integers-hide-no-overflow",
        "OVERFLOW-integers",
        "one dtype for all: beside integers a NaN is one",
        "integers",
        tree=[array("int32", [1, 2, 3]), BAD, BAD],
    ),
    overflow(
        "real-parts-are-looked-at",
        "OVERFLOW-complex",
        "half done: only the imaginary part",
        "complex",
        tree=[array("complex64", [complex(NAN, 1.0), complex(NAN, 1.0)])],
    ),
    overflow(
        "imaginary-parts-are-looked-at",
        "OVERFLOW-complex",
        "half done: only the real part",
        "complex",
        tree=[array("complex64", [complex(1.0, INF), complex(1.0, INF)])],
    ),
    finite(
        "a-large-complex-is-finite",
        "OVERFLOW-complex",
        "a magnitude: two finite parts have an infinite one",
        "complex",
        tree=[array("complex64", [complex(2.0**127.75, 2.0**127.75)])],
    ),
    finite(
        "an-array-without-elements-is-finite",
        "OVERFLOW-empty",
        "nothing to reduce: it raises, or is an overflow",
        tree=[array("float32", [], shape=(0, 3)), GOOD],
    ),
    overflow(
        "an-array-without-elements-hides-nothing",
        "OVERFLOW-empty",
        "early end: what comes after it is not looked at",
        tree=[array("float32", [], shape=(0, 3)), BAD, BAD],
    ),
    finite(
        "an-empty-tree-is-finite",
        "OVERFLOW-empty",
        "nothing to check: no gradients are an overflow, or an error",
        "empty",
        tree=[],
    ),
    finite("none-is-finite", "OVERFLOW-none", "no gradient: None raises, or is an overflow", "none", tree=[None, GOOD]),
    overflow(
        "none-hides-no-overflow",
        "OVERFLOW-none",
        "early end: what comes after a None is not looked at",
        "none",
        tree=[None, BAD, BAD],
    ),
)
