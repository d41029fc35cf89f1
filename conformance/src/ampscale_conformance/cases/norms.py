"""Chapter 40, norms: what a step tells of its gradients' norm, and what clipping makes of them."""

import math
from functools import partial
from typing import Any

from ..model.bits import Bits, leaves
from ..model.case import Case, case, named
from ..model.subject import Subject
from ..oracle.tensors import numbers
from .calls_loop import simple_rule
from .step import NEAR, Cell, arrays, expect_output, told

THREE_FOUR = [[3.0], [4.0]]  # two arrays, whose norm is 5
ZEROS = [[0.0], [0.0]]


def clipped(name: str, max_norm: float, catches: str) -> Case:
    """A case that clips gradients of 3 and 4 to a limit; the parameters are right within `NEAR`, as published formulas are."""
    return named(name, 3, catches, partial(_clip, max_norm=max_norm), {"clip"})


def _clip(subject: Subject, max_norm: float) -> None:
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), max_norm=max_norm)
    outputs, wanted = cell.train(arrays(THREE_FOUR))
    got = [leaf for _, leaf in leaves(subject.read(told(outputs, "parameters"), "parameters"))]
    near = len(got) == len(wanted.parameters) and all(map(_near, got, wanted.parameters))
    subject.expect(
        near, f"zeros moved by 3 and 4, clipped to {max_norm!r}: wanted {_shown(wanted.parameters)}, got {_shown(got)}"
    )


def _near(got: Any, hoped: Bits) -> bool:
    if not isinstance(got, Bits) or (got.dtype, got.shape) != (hoped.dtype, hoped.shape):
        return False
    return all(math.isclose(one, other, rel_tol=NEAR) for one, other in zip(numbers(got), numbers(hoped), strict=True))


def _shown(parameters: list[Any]) -> str:
    return ", ".join(
        str([float(value) for value in numbers(leaf)]) if leaf.dtype == "float32" else leaf.dtype for leaf in parameters
    )


@case("NORMS-global", 3, "wrong norm: it is of scaled gradients, of one array, or a sum of norms", "norm")
def the_norm_is_of_all_gradients_unscaled(subject: Subject) -> None:
    """Five, of 3 and 4; under a far limit, since some tell no norm unless they clip."""
    limit = {"max_norm": 64.0} if "clip" in subject.info.capabilities else {}
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), **limit)
    expect_output(subject, *cell.train(arrays(THREE_FOUR)), "global_norm", "step 1")


@case("NORMS-clip-before", 3, "late norm: what is told is the norm after clipping, and always the limit", "norm", "clip")
def the_norm_is_told_as_it_was_before_clipping(subject: Subject) -> None:
    """Five, under a limit of 1."""
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), max_norm=1.0)
    expect_output(subject, *cell.train(arrays(THREE_FOUR)), "global_norm", "step 1")


@case("STEP-clip", 3, "norm for a check: finite gradients whose squares overflow skip the step, and the scale backs off", "clip")
def an_infinite_norm_is_no_overflow(subject: Subject) -> None:
    """The squares of 2**70 are beyond float32."""
    cell = Cell(subject, simple_rule(subject), arrays(ZEROS), max_norm=1.0)
    expect_output(subject, *cell.train(arrays([[2.0**70], [2.0**70]])), "finite", "step 1")


CASES = (
    the_norm_is_of_all_gradients_unscaled,
    the_norm_is_told_as_it_was_before_clipping,
    clipped(
        "NORMS-clip/clips-all-gradients-by-one-coefficient",
        1.0,
        "wrong clipping: of gradients that are still scaled, of each array by itself, or of each element",
    ),
    clipped(
        "NORMS-clip-under-limit/leaves-gradients-under-the-limit",
        64.0,
        "normalizing: what is under the limit is brought up to it",
    ),
    clipped(
        "NORMS-clip-magnitudes/takes-a-limit-beyond-float32",
        1e39,
        "limit rounded to infinity: the coefficient is NaN, and so are the parameters of a step that is applied",
    ),
    an_infinite_norm_is_no_overflow,
)
