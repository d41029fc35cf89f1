"""Chapter 40, norms: the reported gradient norm, and the clipped gradients."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits, leaves
from ..model.case import Case, case, named
from ..model.subject import Subject
from ..oracle.tensors import numbers
from .calls_loop import simple_rule
from .step import NEAR, Cell, arrays, expect_output, output

THREE_FOUR = [[3.0], [4.0]]  # two arrays, whose norm is 5
ZEROS = [[0.0], [0.0]]


def clipped(name: str, max_norm: float, catches: str) -> Case:
    """Return a case that clips gradients of 3 and 4. Parameters may differ by `NEAR`, since published formulas differ."""
    return named(name, 3, catches, partial(_clip, max_norm=max_norm), {"clip"})


def _clip(subject: Subject, max_norm: float) -> None:
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), max_norm=max_norm)
    outputs, expected = cell.train(arrays(THREE_FOUR))
    got = [leaf for _, leaf in leaves(subject.to_bits(output(outputs, "parameters"), "parameters"))]
    near = len(got) == len(expected.parameters) and all(map(_near, got, expected.parameters))
    text = f"expected {_values(expected.parameters)}, got {_values(got)}"
    subject.expect(near, f"zero parameters after a step with gradients of 3 and 4, clipped to {max_norm!r}: {text}")


def _near(got: Any, expected: Bits) -> bool:
    if not isinstance(got, Bits) or (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return False
    return all(math.isclose(left, right, rel_tol=NEAR) for left, right in zip(numbers(got), numbers(expected), strict=True))


def _values(parameters: list[Any]) -> str:
    return ", ".join(
        str([float(value) for value in numbers(leaf)]) if leaf.dtype == "float32" else leaf.dtype for leaf in parameters
    )


@case("NORMS-global", 3, "wrong norm: the norm of scaled gradients or of one array, or a sum of norms", "norm")
def the_norm_is_of_all_gradients_unscaled(subject: Subject) -> None:
    """The norm of 3 and 4 is 5. The limit is high, since some implementations report a norm only if they clip."""
    limit = {"max_norm": 64.0} if "clip" in subject.info.capabilities else {}
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), **limit)
    expect_output(subject, *cell.train(arrays(THREE_FOUR)), "global_norm", "step 0 (counted from 0)")


@case("NORMS-clip-before", 3, "late norm: the norm after clipping, which always equals the limit", "norm", "clip")
def the_norm_is_the_one_before_clipping(subject: Subject) -> None:
    """The norm is 5, with a limit of 1."""
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), max_norm=1.0)
    expect_output(subject, *cell.train(arrays(THREE_FOUR)), "global_norm", "step 0 (counted from 0)")


@case(
    "STEP-clip", 3, "overflow of the norm: finite gradients with an infinite norm skip the step, and the scale backs off", "clip"
)
def an_infinite_norm_is_no_overflow(subject: Subject) -> None:
    """The square of 2**70 overflows float32."""
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), max_norm=1.0)
    expect_output(subject, *cell.train(arrays([[2.0**70], [2.0**70]])), "finite", "step 0 (counted from 0)")


CASES = (
    the_norm_is_of_all_gradients_unscaled,
    the_norm_is_the_one_before_clipping,
    clipped(
        "NORMS-clip/clips-all-gradients-by-one-coefficient",
        1.0,
        "wrong clipping: scaled gradients, each array, or each element is clipped by itself",
    ),
    clipped("NORMS-clip-under-limit/leaves-gradients-under-the-limit", 64.0, "normalization: gradients are scaled up to it"),
    clipped(
        "NORMS-clip-magnitudes/takes-a-limit-beyond-float32",
        1e39,
        "infinite limit: the limit overflows float32, so the coefficient and the updated parameters are NaN",
    ),
    an_infinite_norm_is_no_overflow,
)
