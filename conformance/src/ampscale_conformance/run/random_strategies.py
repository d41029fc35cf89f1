"""Strategies for random test generation: overflow traces with supported rules, and trees of arrays with scales."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise, zip_longest
from math import inf, nan, prod
from typing import Any, NamedTuple

from ..cases.machine_lockstep import run_lockstep
from ..cases.overflow import check_all_finite
from ..model.adapter import ImplementationInfo
from ..model.bits import DIGITS, Bits, leaves
from ..model.floats import FORMATS, encode
from ..model.subject import Subject
from ..model.supported_rules import supported_rules
from ..oracle import tensors

Draw = Callable[[Any], Any]  # Hypothesis's draw: from a strategy to a value


class GeneratedCase(NamedTuple):
    """Generated case, and its inputs for a test vector."""

    chapter: str
    run: Callable[[Subject], None]
    inputs: dict[str, Any]


# --- traces ---

# Hypothesis shrinks towards the first value of each tuple.
# Exponents of the initial scale:
START = (8, 4, 0, 12)
BOUND = (0, 1, 3)  # distance of a bound from the initial scale, in powers of two
EXACT = {"growth_factor": (2.0, 4.0), "backoff_factor": (0.5, 0.25)}
INEXACT = {"growth_factor": (3.0, 1.5, 1.1), "backoff_factor": (1 / 3, 0.8)}
COUNTS = {
    "growth_interval": (1, 2, 3, 4),
    "hysteresis": (1, 2, 3),
    "overflow_tolerance": (0.5, 0.25),
    "raise_at_min_scale": (False, True),
}


def draw_trace(draw: Draw, info: ImplementationInfo) -> GeneratedCase:
    """Generate a rule and an overflow trace of at most 24 steps, whose scales stay far from the limits of float32."""
    from hypothesis.strategies import lists, sampled_from

    start = draw(sampled_from(START))
    settings = {"init_scale": 2.0**start}
    for name, bound in (("min_scale", -1), ("max_scale", 1)):
        settings[name] = 2.0 ** (start + bound * draw(sampled_from(BOUND)))
    inexact = INEXACT if "rounding" in info.capabilities else {}
    for name, values in EXACT.items():
        settings[name] = draw(sampled_from(values + inexact.get(name, ())))
    settings |= {name: draw(sampled_from(values)) for name, values in COUNTS.items()}
    settings = {name: value for name, value in settings.items() if name in supported_rules(info.preset).parameters}
    finite = "".join(draw(lists(sampled_from("+-"), min_size=1, max_size=24)))
    run = partial(run_lockstep, finite=finite, settings=settings)
    return GeneratedCase("machine", run, {"finite": finite, "settings": settings})


# --- arrays ---

SCALES = (2.0**10, 1.0, 2.0**-2, 2.0**17, 2.0**24)
INEXACT_SCALES = (3.0, 1000.0)
SHAPES = ((1,), (), (3,), (2, 2))
REACH = 30  # range of exponents around 0: scaled values stay normal, since some libraries flush subnormal ones to zero


def draw_check(draw: Draw, info: ImplementationInfo) -> GeneratedCase:
    """Generate a tree that may contain one infinity or NaN."""
    tree = _draw_tree(draw, info, ("float32", "float16", "float64", "bfloat16", "complex64"))
    run = partial(check_all_finite, expected=tensors.all_finite(tree), trees=[tree])
    return GeneratedCase("overflow", run, {"tree": tree})


def draw_arithmetic(draw: Draw, info: ImplementationInfo, method: str) -> GeneratedCase:
    """Generate a tree, and a scale to multiply or divide it by."""
    from hypothesis.strategies import sampled_from

    scale = draw(sampled_from(SCALES + (INEXACT_SCALES if "division" in info.capabilities else ())))
    # Complex special values are left out: libraries multiply them in different ways.
    tree = _draw_tree(draw, info, ("float32", "float16", "float64", "bfloat16"))
    inputs = {"method": method, "scale": scale, "tree": tree}
    return GeneratedCase("scaling", partial(_compute, **inputs), inputs)


def _draw_tree(draw: Draw, info: ImplementationInfo, special: tuple[str, ...]) -> list[Bits]:
    """Generate up to three arrays of one dtype. If it is in *special*, one element may be zero, infinite or NaN."""
    from hypothesis.strategies import integers, lists, sampled_from

    optional = [dtype for claim, dtype in (("bfloat16", "bfloat16"), ("complex", "complex64")) if claim in info.capabilities]
    dtype = draw(sampled_from(["float32", "float16", "float64", *optional]))
    shapes = draw(lists(sampled_from(SHAPES), min_size=1, max_size=3))
    ends = [*accumulate((prod(shape) for shape in shapes), initial=0)]
    patterns = [_draw_pattern(draw, dtype) for _ in range(ends[-1])]
    if dtype in special:
        index = draw(integers(0, 2 * ends[-1]))  # out of range in half of the cases
        patterns[index : index + 1] = [draw(sampled_from(_specials(dtype)))] if index < ends[-1] else []
    return [Bits(dtype, shape, tuple(patterns[start:end])) for shape, (start, end) in zip(shapes, pairwise(ends), strict=True)]


def _draw_pattern(draw: Draw, dtype: str) -> int:
    """Generate the bit pattern of a finite number. The integer 0 becomes 1.0, and small integers become powers of two."""
    from hypothesis.strategies import integers

    if dtype in tensors.PARTS:
        part = tensors.PARTS[dtype]
        return _draw_pattern(draw, part) << 4 * DIGITS[part] | _draw_pattern(draw, part)
    exponent_bits, fraction_bits = FORMATS[dtype]
    bias = (1 << exponent_bits - 1) - 1
    reach = min(REACH, bias)  # all exponents of float16
    magnitude, negative = divmod(draw(integers(0, 2 * (2 * reach + 1) * 2**fraction_bits - 1)), 2)
    fraction, offset = divmod(magnitude, 2 * reach + 1)
    exponent = bias + (offset + 1) // 2 * (1 if offset % 2 else -1)
    return int(negative << exponent_bits + fraction_bits | exponent << fraction_bits | fraction)


def _specials(dtype: str) -> list[int]:
    """Return the patterns of NaN, infinities and zeros; for a complex dtype in either component."""
    if dtype in tensors.PARTS:
        part = tensors.PARTS[dtype]
        one, width = encode(1, part), 4 * DIGITS[part]
        return [pattern for special in _specials(part) for pattern in (special << width | one, one << width | special)]
    return [encode(value, dtype) for value in (nan, inf, -inf, 0.0, -0.0)]


def _compute(subject: Subject, method: str, scale: float, tree: list[Bits]) -> None:
    handle = subject.create(subject.rule(init_scale=scale))
    got = getattr(subject, method)(handle, tree)
    dtypes = [getattr(leaf, "dtype", None) for _, leaf in leaves(got)]
    expected = [computed(method, leaf, scale, dtype) for leaf, dtype in zip_longest(tree, dtypes[: len(tree)])]
    subject.expect_same(got, expected, method)


def computed(method: str, leaf: Bits, scale: float, actual_dtype: str | None) -> Bits:
    """Return an array times or divided by a scale, in its own dtype, or in float32 if a 16-bit result was returned so."""
    widened = actual_dtype == "float32" and leaf.dtype in ("float16", "bfloat16")
    return getattr(tensors, method)(leaf, scale, "float32" if widened else None)  # type: ignore[no-any-return]  # of two functions
