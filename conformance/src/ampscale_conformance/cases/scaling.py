"""Chapter 10, scaling: products and quotients of trees and the scale, compared bit for bit."""

from functools import partial
from math import inf, nan
from typing import Any, NamedTuple

from ..model.bits import Bits, arrays, leaves, map_tree
from ..model.case import Case, case, named, under
from ..model.subject import Subject, to_record
from ..model.supported_rules import SMALL
from ..oracle import tensors
from ..oracle.tensors import array, bfloat16, complex64, complex128, float16, float32, float64
from .scaling_drawn import DRAWN
from .scaling_trees import check_products

TINY = 2.0**-24  # smallest float16 subnormal, of which all float16 numbers are multiples


PAIR = [float32(1.5, -3.0)]
NOT_FINITE = [float32(value) for value in (inf, -inf, nan)]


def scaled(name: str, catches: str, tree: Any, *needs: str, scale: float = SMALL, method: str = "scale", ulps: int = 0) -> Case:
    """Return a case that multiplies a tree by a scale; results may differ by some units in the last place."""
    dtypes = {leaf.dtype for leaf in arrays(tree)} if method == "unscale" else set[str]()
    run = partial(_check, method=method, scale=scale, tree=tree, ulps=ulps)
    return named(name, 1, catches, run, {*needs, *dtypes & {"float16"}})


unscaled = partial(scaled, method="unscale")  # makes a case that divides a tree


def nonfinite(name: str, catches: str, method: str) -> Case:
    """Return a case that passes infinities and NaN, which may turn into one another."""
    return named(name, 1, catches, partial(_nonfinite, method=method, tree=NOT_FINITE))


def _check(subject: Subject, method: str, scale: float, tree: Any, ulps: int) -> None:
    check_products(subject, subject.create(subject.rule(init_scale=scale)), method, scale, tree, ulps=ulps)


def _nonfinite(subject: Subject, method: str, tree: Any) -> None:
    got = getattr(subject, method)(subject.create(subject.rule(init_scale=SMALL)), tree)
    finite = [path for path, leaf in leaves(got) if not isinstance(leaf, Bits) or tensors.all_finite(leaf)]
    subject.expect(not finite, f"{method}: expected non-finite values, got finite ones at {finite} of {to_record(got)}")


class Layer(NamedTuple):
    """Container of gradients."""

    weight: Any
    bias: Any


@case("SCALING-inputs", 1, "wrong container: a NamedTuple raises an error, or becomes a tuple", "namedtuple")
def unscales_in_named_tuples(subject: Subject) -> None:
    """A NamedTuple contains another one."""
    tree = Layer(Layer(float32(1.5), float32(2.5)), float32(3.5, 4.5))
    argument, handle = subject.to_arrays(tree), subject.create(subject.rule(init_scale=SMALL))
    result = subject.call("unscale", handle, argument)
    got = argument if result is None else result
    subject.expect(type(got) is Layer, f"unscale: expected a Layer, which is a NamedTuple, got a {type(got).__name__}")
    expected = map_tree(lambda leaf: tensors.unscale(leaf, SMALL), tree)
    subject.expect_same(subject.to_bits(got, "unscale"), expected, f"unscale at {SMALL!r}")


CASES = (
    *under(
        "SCALING-round-once",
        scaled("scales-float32-in-float32", "half precision: a loss becomes float16", [float32(1 + 2.0**-23, -(2 - 2.0**-22))]),
        scaled(
            "scales-float64-in-float64", "single precision: a float64 loss is rounded to float32", [float64(1 + 2.0**-40, 2.0)]
        ),
        scaled(
            "scale-rounds-float16-to-nearest-even",
            "wrong rounding: a product halfway between two float16 numbers is truncated, or rounded up",
            [float16(1025.0, -1027.0)],
            scale=3.0,
        ),
        scaled(
            "scale-rounds-bfloat16-to-nearest-even",
            "wrong rounding: the lower half of the float32 product is truncated",
            [bfloat16(129.0, -131.0)],
            "bfloat16",
            scale=3.0,
        ),
        scaled(
            "scale-overflows-to-infinity",
            "hidden overflow: a product beyond float16 becomes its largest number, or is infinite in float32 too",
            [float16(2.0**13, -(2.0**13))],
            scale=2.0**4,
        ),
        scaled("scales-float16-subnormals", "flush to zero: a float16 subnormal becomes zero", [float16(TINY, -3 * TINY)]),
    ),
    scaled(
        "SCALING-scale-float32/scales-zero-by-2-17-in-float16",
        "narrow scale: the scale is infinite in float16, and zero times infinity is NaN",
        [float16(0.0, 2.0**-5)],
        scale=2.0**17,
    ),
    nonfinite("SCALING-nonfinite/scale-keeps-non-finite-values", "hidden overflow: a non-finite loss becomes finite", "scale"),
    scaled(
        "SCALING-dtype-kept/scale-keeps-the-shape-of-a-loss",
        "wrong array: a loss gains or loses a dimension, or becomes float64",
        [array("float32", 1.5), float32(1.5)],
    ),
    scaled("SCALING-inputs/scales-losses-in-containers", "skipped leaf: the tuple is not scaled", [{"a": (float32(1.5, 2.5),)}]),
    scaled("SCALING-structure-kept/scale-keeps-none", "missing leaf: None raises an error, or is dropped", [None, *PAIR], "none"),
    scaled(
        "SCALING-complex/scales-both-parts-of-complex64",
        "missing part: the imaginary part is dropped, or not scaled",
        [complex64(1.5 - 2.5j, 2.0)],
        "complex",
    ),
    unscaled(
        "SCALING-unscale-divides/unscales-by-1001-and-a-half",
        "coarse scale: the scale is rounded to a power of two, to 16 bits, or to an integer",
        [float32(1.5, -7.0)],
        scale=1001.5,
        ulps=1,
    ),
    unscaled(
        "SCALING-scale-float32/divides-float16-by-3",
        "narrow reciprocal: float16 gradients are multiplied by a float16 reciprocal",
        [float16(5.0, 7.0)],
        "division",
        scale=3.0,
    ),
    *under(
        "SCALING-round-once",
        unscaled(
            "divides-bfloat16-by-3",
            "wrong rounding: the lower half of the float32 quotient is truncated",
            [bfloat16(2.0, 8.0)],
            "division",
            "bfloat16",
            scale=3.0,
        ),
        unscaled(
            "divides-float64-by-3",
            "narrow reciprocal: float64 gradients are multiplied by a float32 reciprocal",
            [float64(5.0, 6.0)],
            "division",
            scale=3.0,
        ),
        unscaled("unscales-float32-in-float32", "half precision: it becomes float16", [float32(1 + 2.0**-23, -(2 - 2.0**-22))]),
        unscaled("unscales-float64-in-float64", "single precision: the gradient becomes float32", [float64(1 + 2.0**-40, 2.0)]),
        unscaled(
            "unscales-float16-with-all-its-digits",
            "low precision: a float16 gradient is rounded to bfloat16",
            [float16(1 + 2.0**-10, -(2 - 2.0**-10))],
        ),
        unscaled(
            "unscales-bfloat16-in-its-range",
            "wrong format: a bfloat16 gradient is read as float16",
            [bfloat16(2.0**100, -(2.0**-100))],
            "bfloat16",
        ),
        unscaled(
            "unscales-float16-subnormals",
            "flush to zero: a float16 subnormal becomes zero",
            [float16(2 * TINY, -512 * TINY)],
            scale=2.0,
        ),
        unscaled(
            "unscale-rounds-an-underflow-to-even",
            "wrong rounding: a quotient halfway between two subnormals is truncated, rounded up, or zero",
            [float16(3 * TINY * 2.0**11, -5 * TINY * 2.0**11)],
            scale=2.0**12,
        ),
    ),
    unscaled(
        "SCALING-widen/unscale-widens-before-it-rounds",
        "double rounding: the quotient is rounded to float16 before it is returned in float32",
        [float16(2.0**-14, -(2.0**-14))],
        scale=2.0**12,
    ),
    unscaled(
        "SCALING-scale-float32/unscales-float16-by-2-25",
        "narrow scale: the scale is infinite in float16 and its reciprocal zero, so every gradient becomes zero",
        [float16(2.0**15, -(2.0**14))],
        scale=2.0**25,
    ),
    nonfinite(
        "SCALING-nonfinite/unscale-keeps-non-finite-values", "hidden overflow: a non-finite gradient becomes finite", "unscale"
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-shapes-of-one-element",
        "wrong array: a gradient gains or loses a dimension, or becomes float64",
        [array("float32", 1.5), float32(1.5)],
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-a-matrix",
        "wrong array: a matrix is flattened",
        [array("float32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])],
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-several-dtypes",
        "single dtype: every gradient is returned in the dtype of the first",
        [float16(1.5, 2.5), float32(1.5, 2.5)],
    ),
    unscaled("SCALING-inputs/unscales-in-dicts", "skipped leaf: an inner dict is not divided", [{"a": {"b": float32(1.5, 2.5)}}]),
    unscaled(
        "SCALING-inputs/unscales-in-tuples", "skipped leaf: gradients in an inner tuple are not divided", [(float32(1.5, 2.5),)]
    ),
    unscales_in_named_tuples,
    *under(
        "SCALING-structure-kept",
        unscaled(
            "unscale-keeps-twelve-in-order",
            "wrong order: paths are sorted as strings, so the eleventh gradient follows the second",
            [float32(1.0 + n, 1.0) for n in range(12)],
        ),
        unscaled("unscale-keeps-each-key", "wrong order: keys are exchanged", {"b": float32(1.0, 2.0), "a": float32(3.0, 4.0)}),
        unscaled("unscale-keeps-none", "missing gradient: None is dropped, or becomes zeros", [None, *PAIR], "none"),
        unscaled("unscales-an-empty-tree", "empty tree: an empty list raises an error", [], "empty"),
    ),
    unscaled(
        "SCALING-complex/unscales-both-parts-of-complex128",
        "single precision: complex128 is computed in complex64",
        [complex128(1 + 2.0**-40 - 2.5j, 2.0)],
        "complex",
    ),
    *DRAWN,
)
