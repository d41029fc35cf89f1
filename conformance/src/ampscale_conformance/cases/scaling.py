"""Chapter 10, scaling: trees times the scale and divided by it, bit for bit."""

from ..model.case import case
from ..model.claimed_rules import SMALL
from ..model.subject import Subject
from ..oracle.tensors import array, bfloat16, complex64, complex128, float16, float32, float64
from .scaling_trees import PAIR, again, beside, moved, scaled, unmended, unscaled

TINY = 2.0**-24  # float16's smallest subnormal, of which all of them are multiples


@case("SCALING-new-arrays", 1, "in place: the loss that is reported is the scaled one")
def scale_leaves_its_input_alone(subject: Subject) -> None:
    """The given arrays after the call, unless they are the result."""
    handle, given = subject.create(subject.rule(init_scale=SMALL)), subject.made(PAIR)
    if subject.call("scale", handle, given) is not None:
        subject.expect_same(subject.read(given, "the input"), PAIR, "the input of scale")


CASES = (
    moved(
        "SCALING-scale/scale-follows-a-growth",
        "stale: losses are multiplied by the scale before the growth",
        "scale",
        finite=True,
    ),
    moved(
        "SCALING-scale/scale-follows-a-backoff",
        "stale: losses are multiplied by the scale before the backoff",
        "scale",
        finite=False,
    ),
    again("SCALING-scale/scales-every-loss", "once a step: the second loss is not multiplied", "scale"),
    beside("SCALING-scale/scale-is-its-own", "shared: losses are multiplied by the scale of another scaler", "scale"),
    scale_leaves_its_input_alone,
    scaled("SCALING-scale/scales-by-less-than-1", "a floor: a scale below 1 is taken for 1", tree=PAIR, scale=0.25),
    scaled("SCALING-scale/scale-keeps-the-sign-of-zero", "lost sign: -0.0 becomes 0.0", tree=[float32(-0.0, 0.0)]),
    scaled(
        "SCALING-round-once/scales-float32-in-float32",
        "half precision: a float32 loss is rounded to float16 on its way",
        tree=[float32(1 + 2.0**-23, -(2 - 2.0**-22))],
    ),
    scaled(
        "SCALING-round-once/scales-float64-in-float64",
        "single precision: a float64 loss is rounded to float32 on its way",
        tree=[float64(1 + 2.0**-40, 2.0)],
    ),
    scaled(
        "SCALING-round-once/scale-rounds-float16-to-nearest-even",
        "another rounding: a product half way between two float16 is truncated, or rounded up",
        tree=[float16(1025.0, -1027.0)],
        scale=3.0,
    ),
    scaled(
        "SCALING-round-once/scale-rounds-bfloat16-to-nearest-even",
        "another rounding: the lower half of the float32 product is cut off",
        "bfloat16",
        tree=[bfloat16(129.0, -131.0)],
        scale=3.0,
    ),
    scaled(
        "SCALING-round-once/scale-overflows-to-infinity",
        "hidden overflow: a product beyond float16 is its largest number, or infinite in float32 too",
        tree=[float16(2.0**13, -(2.0**13))],
        scale=2.0**4,
    ),
    scaled(
        "SCALING-round-once/scales-float16-subnormals",
        "flush to zero: a small float16 is taken for zero",
        tree=[float16(TINY, -3 * TINY)],
    ),
    scaled(
        "SCALING-scale-float32/scales-zero-by-2-17-in-float16",
        "narrow scale: in float16 it is infinite, and zero times it is NaN",
        tree=[float16(0.0, 2.0**-5)],
        scale=2.0**17,
    ),
    unmended(
        "SCALING-nonfinite/scale-keeps-what-is-not-finite",
        "cleaned: an infinite loss becomes finite, and nobody sees the overflow",
        "scale",
    ),
    scaled(
        "SCALING-dtype-kept/scale-keeps-the-shape-of-a-loss",
        "another array: a loss gets or loses an axis, or comes back in float64",
        tree=[array("float32", 1.5), float32(1.5)],
    ),
    scaled(
        "SCALING-inputs/scales-losses-in-containers",
        "flat: what lies in an inner container is not scaled",
        tree=[{"a": (float32(1.5, 2.5),)}],
    ),
    scaled("SCALING-structure-kept/scale-keeps-none", "no loss: None raises, or is dropped", "none", tree=[None, *PAIR]),
    scaled(
        "SCALING-complex/scales-both-parts-of-complex64",
        "half done: the imaginary part is dropped, or not scaled",
        "complex",
        tree=[complex64(1.5 - 2.5j, 2.0)],
    ),
    moved(
        "SCALING-unscale-divides/unscale-follows-a-growth",
        "stale: gradients are divided by the scale before the growth",
        "unscale",
        finite=True,
    ),
    moved(
        "SCALING-unscale-divides/unscale-follows-a-backoff",
        "stale: gradients are divided by the scale before the backoff",
        "unscale",
        finite=False,
    ),
    moved(
        "SCALING-unscale-divides/unscale-does-not-look-ahead",
        "too early: gradients are divided by the scale that this step will grow to",
        "unscale",
        finite=True,
        steps_before=1,
    ),
    beside("SCALING-unscale-divides/unscale-is-its-own", "shared: gradients are divided by another scaler's scale", "unscale"),
    again(
        "SCALING-unscale-divides/unscales-every-tree",
        "once a step: the second tree is not divided, or divided twice",
        "unscale",
    ),
    unscaled("SCALING-unscale-divides/unscale-keeps-the-sign-of-zero", "lost sign: -0.0 becomes 0.0", tree=[float32(-0.0, 0.0)]),
    unscaled("SCALING-unscale-divides/unscales-by-less-than-1", "a floor: a scale below 1 is taken for 1", tree=PAIR, scale=0.25),
    unscaled(
        "SCALING-unscale-divides/unscales-by-1001-and-a-half",
        "coarse: the scale is taken for a power of two, or kept in 16 bits or as an integer",
        tree=[float32(1.5, -7.0)],
        scale=1001.5,
        ulps=1,
    ),
    unscaled(
        "SCALING-unscale-divides/divides-float32-by-3",
        "a reciprocal: 5 times a third is not 5 divided by 3",
        "division",
        tree=[float32(5.0, 6.0)],
        scale=3.0,
    ),
    unscaled(
        "SCALING-scale-float32/divides-float16-by-3",
        "a narrow reciprocal: float16 gradients are multiplied by one of float16",
        "division",
        tree=[float16(5.0, 7.0)],
        scale=3.0,
    ),
    unscaled(
        "SCALING-round-once/divides-bfloat16-by-3",
        "another rounding: the lower half of the float32 quotient is cut off",
        "division",
        "bfloat16",
        tree=[bfloat16(2.0, 8.0)],
        scale=3.0,
    ),
    unscaled(
        "SCALING-round-once/divides-float64-by-3",
        "a narrow reciprocal: float64 gradients are multiplied by one of float32",
        "division",
        tree=[float64(5.0, 6.0)],
        scale=3.0,
    ),
    unscaled(
        "SCALING-round-once/unscales-float32-in-float32",
        "half precision: a float32 gradient is rounded to float16 on its way",
        tree=[float32(1 + 2.0**-23, -(2 - 2.0**-22))],
    ),
    unscaled(
        "SCALING-round-once/unscales-float64-in-float64",
        "single precision: a float64 gradient is rounded to float32 on its way",
        tree=[float64(1 + 2.0**-40, 2.0)],
    ),
    unscaled(
        "SCALING-round-once/unscales-float16-with-all-its-digits",
        "too few digits: a float16 gradient is rounded to bfloat16 on its way",
        tree=[float16(1 + 2.0**-10, -(2 - 2.0**-10))],
    ),
    unscaled(
        "SCALING-round-once/unscales-bfloat16-in-its-range",
        "another format: a bfloat16 gradient is taken for float16",
        "bfloat16",
        tree=[bfloat16(2.0**100, -(2.0**-100))],
    ),
    unscaled(
        "SCALING-round-once/unscales-float16-subnormals",
        "flush to zero: a small float16 is taken for zero",
        tree=[float16(2 * TINY, -512 * TINY)],
        scale=2.0,
    ),
    unscaled(
        "SCALING-round-once/unscale-rounds-an-underflow-to-even",
        "another rounding: a quotient half way between subnormals is cut off, rounded up or zero",
        tree=[float16(3 * TINY * 2.0**11, -5 * TINY * 2.0**11)],
        scale=2.0**12,
    ),
    unscaled(
        "SCALING-widen/unscale-widens-before-it-rounds",
        "too late: what float32 could hold is rounded to float16 first",
        tree=[float16(2.0**-14, -(2.0**-14))],
        scale=2.0**12,
    ),
    unscaled(
        "SCALING-scale-float32/unscales-float16-by-2-25",
        "narrow scale: in float16 it is infinite and its reciprocal zero, and so is every gradient",
        tree=[float16(2.0**15, -(2.0**14))],
        scale=2.0**25,
    ),
    unmended(
        "SCALING-nonfinite/unscale-keeps-what-is-not-finite",
        "cleaned: an infinite gradient becomes finite, and nobody sees the overflow",
        "unscale",
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-shapes-of-one-element",
        "another array: a gradient gets or loses an axis, or comes back in float64",
        tree=[array("float32", 1.5), float32(1.5)],
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-a-matrix",
        "another array: a matrix comes back flat",
        tree=[array("float32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])],
    ),
    unscaled(
        "SCALING-layout/unscales-no-elements",
        "left out: an array without elements is dropped, or refused",
        tree=[array("float32", []), *PAIR],
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-several-dtypes",
        "one dtype for all: every gradient comes back in that of the first",
        tree=[float16(1.5, 2.5), float32(1.5, 2.5)],
    ),
    unscaled(
        "SCALING-inputs/unscales-in-dicts",
        "left out: gradients in an inner dict are not divided",
        tree=[{"a": {"b": float32(1.5, 2.5)}}],
    ),
    unscaled(
        "SCALING-inputs/unscales-in-tuples",
        "left out: gradients in an inner tuple are not divided",
        tree=[(float32(1.5, 2.5),)],
    ),
    unscaled(
        "SCALING-structure-kept/unscale-keeps-twelve-in-order",
        "sorted as strings: the eleventh gradient comes after the second",
        tree=[float32(1.0 + n, 1.0) for n in range(12)],
    ),
    unscaled(
        "SCALING-structure-kept/unscale-keeps-each-key",
        "mixed up: keys in the given order, gradients in another",
        tree={"b": float32(1.0, 2.0), "a": float32(3.0, 4.0)},
    ),
    unscaled(
        "SCALING-structure-kept/unscale-keeps-none",
        "no gradient: None is dropped, or becomes zeros",
        "none",
        tree=[None, *PAIR],
    ),
    unscaled("SCALING-structure-kept/unscales-an-empty-tree", "nothing to do: an empty list raises", "empty", tree=[]),
    unscaled(
        "SCALING-complex/unscales-both-parts-of-complex128",
        "single precision: complex128 is computed in complex64",
        "complex",
        tree=[complex128(1 + 2.0**-40 - 2.5j, 2.0)],
    ),
)
