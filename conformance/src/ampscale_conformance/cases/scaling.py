"""Chapter 10, scaling: trees times the scale and divided by it, bit for bit."""

from ..model.case import case, under
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
    *under(
        "SCALING-scale",
        moved("scale-follows-a-growth", "stale: losses are multiplied by the scale before the growth", "scale", finite=True),
        moved("scale-follows-a-backoff", "stale: losses are multiplied by the scale before the backoff", "scale", finite=False),
        again("scales-every-loss", "once a step: the second loss is not multiplied", "scale"),
        beside("scale-is-its-own", "shared: losses are multiplied by the scale of another scaler", "scale"),
    ),
    scale_leaves_its_input_alone,
    scaled("SCALING-scale/scales-by-less-than-1", "a floor: a scale below 1 is taken for 1", PAIR, scale=0.25),
    scaled("SCALING-scale/scale-keeps-the-sign-of-zero", "lost sign: -0.0 becomes 0.0", [float32(-0.0, 0.0)]),
    *under(
        "SCALING-round-once",
        scaled(
            "scales-float32-in-float32",
            "half precision: a float32 loss is rounded to float16 on its way",
            [float32(1 + 2.0**-23, -(2 - 2.0**-22))],
        ),
        scaled(
            "scales-float64-in-float64",
            "single precision: a float64 loss is rounded to float32 on its way",
            [float64(1 + 2.0**-40, 2.0)],
        ),
        scaled(
            "scale-rounds-float16-to-nearest-even",
            "another rounding: a product half way between two float16 is truncated, or rounded up",
            [float16(1025.0, -1027.0)],
            scale=3.0,
        ),
        scaled(
            "scale-rounds-bfloat16-to-nearest-even",
            "another rounding: the lower half of the float32 product is cut off",
            [bfloat16(129.0, -131.0)],
            "bfloat16",
            scale=3.0,
        ),
        scaled(
            "scale-overflows-to-infinity",
            "hidden overflow: a product beyond float16 is its largest number, or infinite in float32 too",
            [float16(2.0**13, -(2.0**13))],
            scale=2.0**4,
        ),
        scaled("scales-float16-subnormals", "flush to zero: a small float16 is taken for zero", [float16(TINY, -3 * TINY)]),
    ),
    scaled(
        "SCALING-scale-float32/scales-zero-by-2-17-in-float16",
        "narrow scale: in float16 it is infinite, and zero times it is NaN",
        [float16(0.0, 2.0**-5)],
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
        [array("float32", 1.5), float32(1.5)],
    ),
    scaled(
        "SCALING-inputs/scales-losses-in-containers",
        "flat: what lies in an inner container is not scaled",
        [{"a": (float32(1.5, 2.5),)}],
    ),
    scaled("SCALING-structure-kept/scale-keeps-none", "no loss: None raises, or is dropped", [None, *PAIR], "none"),
    scaled(
        "SCALING-complex/scales-both-parts-of-complex64",
        "half done: the imaginary part is dropped, or not scaled",
        [complex64(1.5 - 2.5j, 2.0)],
        "complex",
    ),
    *under(
        "SCALING-unscale-divides",
        moved("unscale-follows-a-growth", "stale: gradients are divided by the scale before the growth", "unscale", finite=True),
        moved(
            "unscale-follows-a-backoff", "stale: gradients are divided by the scale before the backoff", "unscale", finite=False
        ),
        moved(
            "unscale-does-not-look-ahead",
            "too early: gradients are divided by the scale that this step will grow to",
            "unscale",
            finite=True,
            steps_before=1,
        ),
        beside("unscale-is-its-own", "shared: gradients are divided by another scaler's scale", "unscale"),
        again("unscales-every-tree", "once a step: the second tree is not divided, or divided twice", "unscale"),
        unscaled("unscale-keeps-the-sign-of-zero", "lost sign: -0.0 becomes 0.0", [float32(-0.0, 0.0)]),
        unscaled("unscales-by-less-than-1", "a floor: a scale below 1 is taken for 1", PAIR, scale=0.25),
        unscaled(
            "unscales-by-1001-and-a-half",
            "coarse: the scale is taken for a power of two, or kept in 16 bits or as an integer",
            [float32(1.5, -7.0)],
            scale=1001.5,
            ulps=1,
        ),
        unscaled(
            "divides-float32-by-3",
            "a reciprocal: 5 times a third is not 5 divided by 3",
            [float32(5.0, 6.0)],
            "division",
            scale=3.0,
        ),
    ),
    unscaled(
        "SCALING-scale-float32/divides-float16-by-3",
        "a narrow reciprocal: float16 gradients are multiplied by one of float16",
        [float16(5.0, 7.0)],
        "division",
        scale=3.0,
    ),
    *under(
        "SCALING-round-once",
        unscaled(
            "divides-bfloat16-by-3",
            "another rounding: the lower half of the float32 quotient is cut off",
            [bfloat16(2.0, 8.0)],
            "division",
            "bfloat16",
            scale=3.0,
        ),
        unscaled(
            "divides-float64-by-3",
            "a narrow reciprocal: float64 gradients are multiplied by one of float32",
            [float64(5.0, 6.0)],
            "division",
            scale=3.0,
        ),
        unscaled(
            "unscales-float32-in-float32",
            "half precision: a float32 gradient is rounded to float16 on its way",
            [float32(1 + 2.0**-23, -(2 - 2.0**-22))],
        ),
        unscaled(
            "unscales-float64-in-float64",
            "single precision: a float64 gradient is rounded to float32 on its way",
            [float64(1 + 2.0**-40, 2.0)],
        ),
        unscaled(
            "unscales-float16-with-all-its-digits",
            "too few digits: a float16 gradient is rounded to bfloat16 on its way",
            [float16(1 + 2.0**-10, -(2 - 2.0**-10))],
        ),
        unscaled(
            "unscales-bfloat16-in-its-range",
            "another format: a bfloat16 gradient is taken for float16",
            [bfloat16(2.0**100, -(2.0**-100))],
            "bfloat16",
        ),
        unscaled(
            "unscales-float16-subnormals",
            "flush to zero: a small float16 is taken for zero",
            [float16(2 * TINY, -512 * TINY)],
            scale=2.0,
        ),
        unscaled(
            "unscale-rounds-an-underflow-to-even",
            "another rounding: a quotient half way between subnormals is cut off, rounded up or zero",
            [float16(3 * TINY * 2.0**11, -5 * TINY * 2.0**11)],
            scale=2.0**12,
        ),
    ),
    unscaled(
        "SCALING-widen/unscale-widens-before-it-rounds",
        "too late: what float32 could hold is rounded to float16 first",
        [float16(2.0**-14, -(2.0**-14))],
        scale=2.0**12,
    ),
    unscaled(
        "SCALING-scale-float32/unscales-float16-by-2-25",
        "narrow scale: in float16 it is infinite and its reciprocal zero, and so is every gradient",
        [float16(2.0**15, -(2.0**14))],
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
        [array("float32", 1.5), float32(1.5)],
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-a-matrix",
        "another array: a matrix comes back flat",
        [array("float32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])],
    ),
    unscaled(
        "SCALING-layout/unscales-no-elements",
        "left out: an array without elements is dropped, or refused",
        [array("float32", []), *PAIR],
    ),
    unscaled(
        "SCALING-dtype-kept/unscales-several-dtypes",
        "one dtype for all: every gradient comes back in that of the first",
        [float16(1.5, 2.5), float32(1.5, 2.5)],
    ),
    unscaled(
        "SCALING-inputs/unscales-in-dicts",
        "left out: gradients in an inner dict are not divided",
        [{"a": {"b": float32(1.5, 2.5)}}],
    ),
    unscaled(
        "SCALING-inputs/unscales-in-tuples", "left out: gradients in an inner tuple are not divided", [(float32(1.5, 2.5),)]
    ),
    *under(
        "SCALING-structure-kept",
        unscaled(
            "unscale-keeps-twelve-in-order",
            "sorted as strings: the eleventh gradient comes after the second",
            [float32(1.0 + n, 1.0) for n in range(12)],
        ),
        unscaled(
            "unscale-keeps-each-key",
            "mixed up: keys in the given order, gradients in another",
            {"b": float32(1.0, 2.0), "a": float32(3.0, 4.0)},
        ),
        unscaled("unscale-keeps-none", "no gradient: None is dropped, or becomes zeros", [None, *PAIR], "none"),
        unscaled("unscales-an-empty-tree", "nothing to do: an empty list raises", [], "empty"),
    ),
    unscaled(
        "SCALING-complex/unscales-both-parts-of-complex128",
        "single precision: complex128 is computed in complex64",
        [complex128(1 + 2.0**-40 - 2.5j, 2.0)],
        "complex",
    ),
)
