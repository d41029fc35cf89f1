"""What the random tier draws: rules that the claim allows with traces, and trees of arrays with scales."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise, zip_longest
from math import inf, nan, prod
from typing import Any, NamedTuple

from ..cases.machine_lockstep import walk
from ..cases.overflow import ask
from ..model.adapter import ImplementationInfo
from ..model.bits import DIGITS, Bits, leaves
from ..model.claimed_rules import family_of
from ..model.floats import FORMATS, encode
from ..model.subject import Subject
from ..oracle import tensors

Draw = Callable[[Any], Any]  # Hypothesis's: a strategy in, a value out


class Drawn(NamedTuple):
    """A case, and what a vector says of it."""

    chapter: str
    ask: Callable[[Subject], None]
    given: dict[str, Any]


# --- traces ---

# By exponent; the first is what a shrunken case has.
START = (8, 4, 0, 12)
BOUND = (0, 1, 3)  # so many powers of two below or above the start
EXACT = {"growth_factor": (2.0, 4.0), "backoff_factor": (0.5, 0.25)}
INEXACT = {"growth_factor": (3.0, 1.5, 1.1), "backoff_factor": (1 / 3, 0.8)}
COUNTS = {
    "growth_interval": (1, 2, 3, 4),
    "hysteresis": (1, 2, 3),
    "overflow_tolerance": (0.5, 0.25),
    "raise_at_min_scale": (False, True),
}


def drawn_trace(draw: Draw, info: ImplementationInfo) -> Drawn:
    """A rule and a trace of at most 24 steps, which stays far from the edges of float32."""
    from hypothesis.strategies import lists, sampled_from

    start = draw(sampled_from(START))
    settings = {"init_scale": 2.0**start}
    for name, bound in (("min_scale", -1), ("max_scale", 1)):
        settings[name] = 2.0 ** (start + bound * draw(sampled_from(BOUND)))
    inexact = INEXACT if "rounding" in info.capabilities else {}
    for name, values in EXACT.items():
        settings[name] = draw(sampled_from(values + inexact.get(name, ())))
    settings |= {name: draw(sampled_from(values)) for name, values in COUNTS.items()}
    settings = {name: value for name, value in settings.items() if name in family_of(info.preset).parameters}
    finite = "".join(draw(lists(sampled_from("+-"), min_size=1, max_size=24)))
    return Drawn("machine", partial(walk, finite=finite, settings=settings), {"finite": finite, "settings": settings})


# --- arrays ---

SCALES = (2.0**10, 1.0, 2.0**-2, 2.0**17, 2.0**24)
INEXACT_SCALES = (3.0, 1000.0)
SHAPES = ((1,), (), (3,), (2, 2))
REACH = 30  # powers of two around 1: what is drawn stays normal when it is scaled, since some libraries flush the rest to zero


def drawn_check(draw: Draw, info: ImplementationInfo) -> Drawn:
    """A tree in which something may be infinite or NaN."""
    tree = _drawn_tree(draw, info, ("float32", "float16", "float64", "bfloat16", "complex64"))
    return Drawn("overflow", partial(ask, wanted=tensors.all_finite(tree), trees=[tree]), {"tree": tree})


def drawn_numbers(draw: Draw, info: ImplementationInfo, method: str) -> Drawn:
    """A tree, and a scale to multiply or to divide by."""
    from hypothesis.strategies import sampled_from

    scale = draw(sampled_from(SCALES + (INEXACT_SCALES if "division" in info.capabilities else ())))
    # A complex number of which a part is zero or infinite is multiplied in more ways than one.
    tree = _drawn_tree(draw, info, ("float32", "float16", "float64", "bfloat16"))
    given = {"method": method, "scale": scale, "tree": tree}
    return Drawn("scaling", partial(_compute, **given), given)


def _drawn_tree(draw: Draw, info: ImplementationInfo, special: tuple[str, ...]) -> list[Bits]:
    """Up to three arrays of one dtype; where it is one of *special*, an element may be zero, infinite or NaN."""
    from hypothesis.strategies import integers, lists, sampled_from

    more = [dtype for claim, dtype in (("bfloat16", "bfloat16"), ("complex", "complex64")) if claim in info.capabilities]
    dtype = draw(sampled_from(["float32", "float16", "float64", *more]))
    shapes = draw(lists(sampled_from(SHAPES), min_size=1, max_size=3))
    ends = [*accumulate((prod(shape) for shape in shapes), initial=0)]
    patterns = [_drawn_pattern(draw, dtype) for _ in range(ends[-1])]
    if dtype in special:
        place = draw(integers(0, 2 * ends[-1]))  # half of the places are none
        patterns[place : place + 1] = [draw(sampled_from(_specials(dtype)))] if place < ends[-1] else []
    return [Bits(dtype, shape, tuple(patterns[at:end])) for shape, (at, end) in zip(shapes, pairwise(ends), strict=True)]


def _drawn_pattern(draw: Draw, dtype: str) -> int:
    """A finite number; 0 is drawn for 1, and what is drawn small is a power of two."""
    from hypothesis.strategies import integers

    if dtype in tensors.PARTS:
        part = tensors.PARTS[dtype]
        return _drawn_pattern(draw, part) << 4 * DIGITS[part] | _drawn_pattern(draw, part)
    exponent_bits, fraction_bits = FORMATS[dtype]
    bias = (1 << exponent_bits - 1) - 1
    reach = min(REACH, bias)  # a float16 may be anything
    rest, negative = divmod(draw(integers(0, 2 * (2 * reach + 1) * 2**fraction_bits - 1)), 2)
    fraction, far = divmod(rest, 2 * reach + 1)
    exponent = bias + (far + 1) // 2 * (1 if far % 2 else -1)
    return int(negative << exponent_bits + fraction_bits | exponent << fraction_bits | fraction)


def _specials(dtype: str) -> list[int]:
    """NaN, infinity and zero, and those of a sign; for complex numbers in either part."""
    if dtype in tensors.PARTS:
        part = tensors.PARTS[dtype]
        one, width = encode(1, part), 4 * DIGITS[part]
        return [pattern for each in _specials(part) for pattern in (each << width | one, one << width | each)]
    return [encode(value, dtype) for value in (nan, inf, -inf, 0.0, -0.0)]


def _compute(subject: Subject, method: str, scale: float, tree: list[Bits]) -> None:
    handle = subject.create(subject.rule(init_scale=scale))
    got = getattr(subject, method)(handle, tree)
    came = [getattr(leaf, "dtype", None) for _, leaf in leaves(got)]
    wanted = [computed(method, leaf, scale, dtype) for leaf, dtype in zip_longest(tree, came[: len(tree)])]
    subject.expect_same(got, wanted, method)


def computed(method: str, leaf: Bits, scale: float, came: str | None) -> Bits:
    """An array times or divided by a scale: in its own dtype, or a 16-bit one in float32 if it came so."""
    widened = came == "float32" and leaf.dtype in ("float16", "bfloat16")
    return getattr(tensors, method)(leaf, scale, "float32" if widened else None)  # type: ignore[no-any-return]  # of two functions
