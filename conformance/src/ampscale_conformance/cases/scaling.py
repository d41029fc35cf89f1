"""Chapter 10, scaling: trees times the scale and divided by it, bit for bit."""

from ..model.case import case
from ..model.claimed_rules import SMALL
from ..model.subject import Subject
from ..oracle.tensors import array
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
        "scale-follows-a-growth",
        "SCALING-scale",
        "stale: losses are multiplied by the scale before the growth",
        "scale",
        finite=True,
    ),
    moved(
        "scale-follows-a-backoff",
        "SCALING-scale",
        "stale: losses are multiplied by the scale before the backoff",
        "scale",
        finite=False,
    ),
    again("scales-every-loss", "SCALING-scale", "once a step: the second loss is not multiplied", "scale"),
    beside("scale-is-its-own", "SCALING-scale", "shared: losses are multiplied by the scale of another scaler", "scale"),
    scale_leaves_its_input_alone,
    scaled("scales-by-less-than-1", "SCALING-scale", "a floor: a scale below 1 is taken for 1", tree=PAIR, scale=0.25),
    scaled("scale-keeps-the-sign-of-zero", "SCALING-scale", "lost sign: -0.0 becomes 0.0", tree=[array("float32", [-0.0, 0.0])]),
    scaled(
        "scales-float32-in-float32",
        "SCALING-round-once",
        "half precision: a float32 loss is rounded to float16 on its way",
        tree=[array("float32", [1 + 2.0**-23, -(2 - 2.0**-22)])],
    ),
    scaled(
        "scales-float64-in-float64",
        "SCALING-round-once",
        "single precision: a float64 loss is rounded to float32 on its way",
        tree=[array("float64", [1 + 2.0**-40, 2.0])],
    ),
    scaled(
        "scale-rounds-float16-to-nearest-even",
        "SCALING-round-once",
        "another rounding: a product half way between two float16 is truncated, or rounded up",
        tree=[array("float16", [1025.0, -1027.0])],
        scale=3.0,
    ),
    scaled(
        "scale-rounds-bfloat16-to-nearest-even",
        "SCALING-round-once",
        "another rounding: the lower half of the float32 product is cut off",
        "bfloat16",
        tree=[array("bfloat16", [129.0, -131.0])],
        scale=3.0,
    ),
    scaled(
        "scale-overflows-to-infinity",
        "SCALING-round-once",
        "hidden overflow: a product beyond float16 is its largest number, or infinite in float32 too",
        tree=[array("float16", [2.0**13, -(2.0**13)])],
        scale=2.0**4,
    ),
    scaled(
        "scales-float16-subnormals",
        "SCALING-round-once",
        "flush to zero: a small float16 is taken for zero",
        tree=[array("float16", [TINY, -3 * TINY])],
    ),
    scaled(
        "scales-zero-by-2-17-in-float16",
        "SCALING-scale-float32",
        "narrow scale: in float16 it is infinite, and zero times it is NaN",
        tree=[array("float16", [0.0, 2.0**-5])],
        scale=2.0**17,
    ),
    unmended(
        "scale-keeps-what-is-not-finite",
        "SCALING-nonfinite",
        "cleaned: an infinite loss becomes finite, and nobody sees the overflow",
        "scale",
    ),
    scaled(
        "scale-keeps-the-shape-of-a-loss",
        "SCALING-dtype-kept",
        "another array: a loss gets or loses an axis, or comes back in float64",
        tree=[array("float32", 1.5), array("float32", [1.5])],
    ),
    scaled(
        "scales-losses-in-containers",
        "SCALING-inputs",
        "flat: what lies in an inner container is not scaled",
        tree=[{"a": (array("float32", [1.5, 2.5]),)}],
    ),
    scaled(
        "scale-keeps-none",
        "SCALING-structure-kept",
        "no loss: None raises, or is dropped",
        "none",
        tree=[None, *PAIR],
    ),
    scaled(
        "scales-both-parts-of-complex64",
        "SCALING-complex",
        "half done: the imaginary part is dropped, or not scaled",
        "complex",
        tree=[array("complex64", [1.5 - 2.5j, 2.0])],
    ),
    moved(
        "unscale-follows-a-growth",
        "SCALING-unscale-divides",
        "stale: gradients are divided by the scale before the growth",
        "unscale",
        finite=True,
    ),
    moved(
        "unscale-follows-a-backoff",
        "SCALING-unscale-divides",
        "stale: gradients are divided by the scale before the backoff",
        "unscale",
        finite=False,
    ),
    moved(
        "unscale-does-not-look-ahead",
        "SCALING-unscale-divides",
        "too early: gradients are divided by the scale that this step will grow to",
        "unscale",
        finite=True,
        steps_before=1,
    ),
    beside("unscale-is-its-own", "SCALING-unscale-divides", "shared: gradients are divided by another scaler's scale", "unscale"),
    again(
        "unscales-every-tree",
        "SCALING-unscale-divides",
        "once a step: the second tree is not divided, or divided twice",
        "unscale",
    ),
    unscaled(
        "unscale-keeps-the-sign-of-zero",
        "SCALING-unscale-divides",
        "lost sign: -0.0 becomes 0.0",
        tree=[array("float32", [-0.0, 0.0])],
    ),
    unscaled(
        "unscales-by-less-than-1", "SCALING-unscale-divides", "a floor: a scale below 1 is taken for 1", tree=PAIR, scale=0.25
    ),
    unscaled(
        "unscales-by-1001-and-a-half",
        "SCALING-unscale-divides",
        "coarse: the scale is taken for a power of two, or kept in 16 bits or as an integer",
        tree=[array("float32", [1.5, -7.0])],
        scale=1001.5,
        ulps=1,
    ),
    unscaled(
        "divides-float32-by-3",
        "SCALING-unscale-divides",
        "a reciprocal: 5 times a third is not 5 divided by 3",
        "division",
        tree=[array("float32", [5.0, 6.0])],
        scale=3.0,
    ),
    unscaled(
        "divides-float16-by-3",
        "SCALING-scale-float32",
        "a narrow reciprocal: float16 gradients are multiplied by one of float16",
        "division",
        tree=[array("float16", [5.0, 7.0])],
        scale=3.0,
    ),
    unscaled(
        "divides-bfloat16-by-3",
        "SCALING-round-once",
        "another rounding: the lower half of the float32 quotient is cut off",
        "division",
        "bfloat16",
        tree=[array("bfloat16", [2.0, 8.0])],
        scale=3.0,
    ),
    unscaled(
        "divides-float64-by-3",
        "SCALING-round-once",
        "a narrow reciprocal: float64 gradients are multiplied by one of float32",
        "division",
        tree=[array("float64", [5.0, 6.0])],
        scale=3.0,
    ),
    unscaled(
        "unscales-float32-in-float32",
        "SCALING-round-once",
        "half precision: a float32 gradient is rounded to float16 on its way",
        tree=[array("float32", [1 + 2.0**-23, -(2 - 2.0**-22)])],
    ),
    unscaled(
        "unscales-float64-in-float64",
        "SCALING-round-once",
        "single precision: a float64 gradient is rounded to float32 on its way",
        tree=[array("float64", [1 + 2.0**-40, 2.0])],
    ),
    unscaled(
        "unscales-float16-with-all-its-digits",
        "SCALING-round-once",
        "too few digits: a float16 gradient is rounded to bfloat16 on its way",
        tree=[array("float16", [1 + 2.0**-10, -(2 - 2.0**-10)])],
    ),
    unscaled(
        "unscales-bfloat16-in-its-range",
        "SCALING-round-once",
        "another format: a bfloat16 gradient is taken for float16",
        "bfloat16",
        tree=[array("bfloat16", [2.0**100, -(2.0**-100)])],
    ),
    unscaled(
        "unscales-float16-subnormals",
        "SCALING-round-once",
        "flush to zero: a small float16 is taken for zero",
        tree=[array("float16", [2 * TINY, -512 * TINY])],
        scale=2.0,
    ),
    unscaled(
        "unscale-rounds-an-underflow-to-even",
        "SCALING-round-once",
        "another rounding: a quotient half way between subnormals is cut off, rounded up or zero",
        tree=[array("float16", [3 * TINY * 2.0**11, -5 * TINY * 2.0**11])],
        scale=2.0**12,
    ),
    unscaled(
        "unscale-widens-before-it-rounds",
        "SCALING-widen",
        "too late: what float32 could hold is rounded to float16 first",
        tree=[array("float16", [2.0**-14, -(2.0**-14)])],
        scale=2.0**12,
    ),
    unscaled(
        "unscales-float16-by-2-25",
        "SCALING-scale-float32",
        "narrow scale: in float16 it is infinite and its reciprocal zero, and so is every gradient",
        tree=[array("float16", [2.0**15, -(2.0**14)])],
        scale=2.0**25,
    ),
    unmended(
        "unscale-keeps-what-is-not-finite",
        "SCALING-nonfinite",
        "cleaned: an infinite gradient becomes finite, and nobody sees the overflow",
        "unscale",
    ),
    unscaled(
        "unscales-shapes-of-one-element",
        "SCALING-dtype-kept",
        "another array: a gradient gets or loses an axis, or comes back in float64",
        tree=[array("float32", 1.5), array("float32", [1.5])],
    ),
    unscaled(
        "unscales-a-matrix",
        "SCALING-dtype-kept",
        "another array: a matrix comes back flat",
        tree=[array("float32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])],
    ),
    unscaled(
        "unscales-no-elements",
        "SCALING-layout",
        "left out: an array without elements is dropped, or refused",
        tree=[array("float32", []), *PAIR],
    ),
    unscaled(
        "unscales-several-dtypes",
        "SCALING-dtype-kept",
        "one dtype for all: every gradient comes back in that of the first",
        tree=[array("float16", [1.5, 2.5]), array("float32", [1.5, 2.5])],
    ),
    unscaled(
        "unscales-in-dicts",
        "SCALING-inputs",
        "left out: gradients in an inner dict are not divided",
        tree=[{"a": {"b": array("float32", [1.5, 2.5])}}],
    ),
    unscaled(
        "unscales-in-tuples",
        "SCALING-inputs",
        "left out: gradients in an inner tuple are not divided",
        tree=[(array("float32", [1.5, 2.5]),)],
    ),
    unscaled(
        "unscale-keeps-twelve-in-order",
        "SCALING-structure-kept",
        "sorted as strings: the eleventh gradient comes after the second",
        tree=[array("float32", [1.0 + n, 1.0]) for n in range(12)],
    ),
    unscaled(
        "unscale-keeps-each-key",
        "SCALING-structure-kept",
        "mixed up: keys in the given order, gradients in another",
        tree={"b": array("float32", [1.0, 2.0]), "a": array("float32", [3.0, 4.0])},
    ),
    unscaled(
        "unscale-keeps-none",
        "SCALING-structure-kept",
        "no gradient: None is dropped, or becomes zeros",
        "none",
        tree=[None, *PAIR],
    ),
    unscaled("unscales-an-empty-tree", "SCALING-structure-kept", "nothing to do: an empty list raises", "empty", tree=[]),
    unscaled(
        "unscales-both-parts-of-complex128",
        "SCALING-complex",
        "single precision: complex128 is computed in complex64",
        "complex",
        tree=[array("complex128", [1 + 2.0**-40 - 2.5j, 2.0])],
    ),
)
