"""Chapter 10, scaling: products and quotients of trees and the scale, compared bit for bit."""

from functools import partial
from math import inf
from typing import Any, NamedTuple

from ..model.case import Case, case, named
from ..model.subject import Subject
from ..oracle.tensors import float32
from .scaling_drawn import DRAWN
from .scaling_trees import check_products
from .tensor_vectors import check_arithmetic, vector_cases

VECTORS = """
SCALING-round-once/scales-float32-in-float32 | scales-float32-in-float32
SCALING-round-once/scales-float64-in-float64 | scales-float64-in-float64
SCALING-round-once/scale-rounds-float16-to-nearest-even | scales-float16-to-even
SCALING-round-once/scale-rounds-bfloat16-to-nearest-even | scales-bfloat16-to-even
SCALING-round-once/scale-overflows-to-infinity | float16-overflows
SCALING-round-once/scales-float16-subnormals | scales-float16-subnormals
SCALING-scale-float32/scales-zero-by-2-17-in-float16 | float16-zero-by-65536
SCALING-nonfinite/scale-keeps-non-finite-values | scales-infinity
SCALING-dtype-kept/scale-keeps-the-shape-of-a-loss | scales-shapes-of-one-element
SCALING-structure-kept/scale-keeps-none | scales-beside-none
SCALING-complex/scales-both-parts-of-complex64 | scales-complex64
SCALING-unscale-divides/unscales-by-1001-and-a-half | unscales-by-1001-and-a-half | ulps=1
SCALING-scale-float32/divides-float16-by-3 | divides-by-three-in-float16
SCALING-round-once/divides-bfloat16-by-3 | divides-by-three-in-bfloat16
SCALING-round-once/divides-float64-by-3 | divides-by-three-in-float64
SCALING-round-once/unscales-float32-in-float32 | unscales-float32-in-float32
SCALING-round-once/unscales-float64-in-float64 | unscales-float64-in-float64
SCALING-round-once/unscales-float16-with-all-its-digits | unscales-float16-with-all-its-digits
SCALING-round-once/unscales-bfloat16-in-its-range | unscales-bfloat16-in-its-range
SCALING-round-once/unscales-float16-subnormals | unscales-float16-subnormals
SCALING-round-once/unscale-rounds-an-underflow-to-even | float16-tie-to-even
SCALING-widen/unscale-widens-before-it-rounds | widens-float16-to-float32
SCALING-scale-float32/unscales-float16-by-2-25 | float16-by-2-to-25
SCALING-nonfinite/unscale-keeps-non-finite-values | unscales-infinity
SCALING-dtype-kept/unscales-shapes-of-one-element | unscales-shapes-of-one-element
SCALING-dtype-kept/unscales-a-matrix | matrix
SCALING-dtype-kept/unscales-several-dtypes | unscales-several-dtypes
SCALING-inputs/unscales-in-dicts | unscales-in-dicts
SCALING-structure-kept/unscale-keeps-twelve-in-order | keeps-twelve-in-order
SCALING-structure-kept/unscale-keeps-each-key | keeps-each-key
SCALING-structure-kept/unscale-keeps-none | unscales-beside-none
SCALING-structure-kept/unscales-an-empty-tree | an-empty-tree-returns-empty
SCALING-complex/unscales-both-parts-of-complex128 | unscales-complex128
"""

SCALE = 2.0**10


class Layer(NamedTuple):
    """Container of gradients."""

    weight: Any
    bias: Any


@case("SCALING-inputs", 1, "wrong container: a NamedTuple raises an error, or becomes a tuple", "namedtuple")
def unscales_in_named_tuples(subject: Subject) -> None:
    """Unscale NamedTuples in a NamedTuple and in a dict, with None if that is claimed, and check each member for infinities."""
    bias = None if "none" in subject.info.capabilities else float32(2.5)
    tree = Layer(Layer(float32(1.5), bias), {"w": Layer(float32(3.5, 4.5), bias)})
    argument = subject.to_arrays(tree)
    handle = subject.create(subject.rule(init_scale=SCALE))
    result = check_products(subject, handle, "unscale", SCALE, tree, argument)
    actual = argument if result is None else result
    kinds = [type(node).__name__ for node in (actual, actual[0], actual[1]["w"])]
    subject.expect(kinds == 3 * ["Layer"], f"unscale: expected three of Layer, which is a NamedTuple, got {kinds}")
    one, bad = float32(1.0), float32(inf)
    members = ((one, one, one), (bad, one, one), (one, bad, one), (one, one, bad))
    for nest in (lambda layer: [layer], lambda layer: {"w": layer}):
        flags = [subject.all_finite(nest(Layer(Layer(*inner), outer))) for *inner, outer in members]
        expected = [True, False, False, False]
        message = f"all_finite of Layers, of which only the first is finite: expected {expected}, got {flags}"
        subject.expect(flags == expected, message)


def _in_tuples(name: str, method: str, tree: Any) -> Case:
    """Return a case whose tree contains tuples, unlike those of test vectors."""
    run = partial(check_arithmetic, tree=tree, method=method, scale=SCALE)
    return named(name, 1, "skipped leaf: arrays in an inner tuple keep their values", run)


CASES = (
    *vector_cases(VECTORS),
    unscales_in_named_tuples,
    _in_tuples("SCALING-inputs/scales-losses-in-containers", "scale", [{"a": (float32(1.5, 2.5),)}]),
    _in_tuples("SCALING-inputs/unscales-in-tuples", "unscale", [(float32(1.5, 2.5),)]),
    *DRAWN,
)
