"""Drawn trees, which scalers scale and unscale in turn."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from math import inf, isfinite, ldexp, nan
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import Bits, map_tree, values_of
from ..model.bits import arrays as flat
from ..model.case import case
from ..model.draw import DrawnCase, Pick, numbered, one_in, run_draws, run_unrecorded, seeded
from ..model.floats import decode_float, encode, infinity, lowest_exponent, rounded
from ..model.subject import Subject
from ..model.supported_rules import supported_rules
from ..oracle.tensors import PARTS, array, part_of
from .machine_lockstep import supported_rule
from .overflow_drawn import non_finite_elements
from .scaling_trees import check_products
from .trees_drawn import ANY, LARGE, SHAPES, Array, Tree, draw_number, draw_tree, float_dtypes, overwritten, views

SCALES = (2.0**10, 1.0, 2.0**-2, 2.0**17, 2.0**24)
# At the first scale and a quarter of it, a product with the reciprocal gives another 16-bit quotient of each of `TIES`. At the
# second one, a product is infinite only in bfloat16. At no scale does float64 arithmetic change a 16-bit result.
INEXACT_SCALES = (2.9974684715270996, 513.5, 2.0**12 + 2.0**-7, 2.9974684715270996 / 4)
TIES = {"float16": (0x3934,), "bfloat16": (0x3F94,)}
FLOAT64_SCALES = (2.0**12 + 2.0**-12 - 2.0**-27,)  # rounded to float32, it changes the results of float32 arrays
METHODS = ("scale", "unscale")
# Results near and beyond the largest number of a dtype; in float16 also ties between subnormals, and a result above a tie.
EDGES: dict[str, tuple[float, ...]] = {
    name: (2.0**top, -(2.0**top)) for name, top in (("float32", 128), ("bfloat16", 128), ("float64", 1023))
}
EDGES["float16"] = (65504.0, 65520.0, -(2.0**16), 2.0**-25, 2.0**-25 + 2.0**-35, -3.0 * 2.0**-25)
SUBNORMAL = (1.0, 2.5, -3.5, 1.5, 100.5)  # multiples of the smallest subnormal number, also between two of them
SPOILED = [array("float32", [1.5, inf]), array("float32", nan)]


def draw_arithmetic(
    pick: Pick,
    info: ImplementationInfo,
    methods: Sequence[str] = METHODS,
    *,
    memory: bool = True,
    turns: Sequence[int] = (1, 2, 3),
    **options: Any,
) -> DrawnCase:
    """
    Draw trees with the same containers and shapes, and two scalers, which apply one of *methods* in turn.

    The number of trees is one of *turns*. With *memory*, the arguments and earlier results must be unchanged. *options* are
    further arguments of `draw_tree`.
    """
    method = pick(methods)
    tree = draw_tree(pick, info, **options)
    complexes = [array for array in tree.arrays if array and array.dtype in PARTS]  # their quotients may be rounded twice
    inexact = "division" in info.capabilities and not (method == "unscale" and complexes)
    palettes = (SCALES, _inexact_scales(info) if inexact else SCALES)
    scales = [pick(pick(palettes)) for _ in range(2)]
    trees = [tree.filled(pick, _draw_pattern) for _ in range(pick(turns))]
    inputs = {"method": method, "scale": scales[0], "tree": trees[0]} if len(trees) == 1 else {}
    return DrawnCase(partial(_run, method=method, scales=scales, tree=tree, trees=trees, memory=memory), "scaling", inputs)


def _inexact_scales(info: ImplementationInfo) -> tuple[float, ...]:
    return INEXACT_SCALES + (FLOAT64_SCALES if supported_rules(info.preset).default.dtype == "float64" else ())


def _draw_pattern(pick: Pick, dtype: str) -> int:
    """Draw a number or a zero; complex zeros are left out, since libraries multiply them in different ways."""
    zero = dtype not in PARTS and one_in(4, pick)
    return encode(pick((0.0, -0.0)), dtype) if zero else draw_number(pick, dtype)


def _run(subject: Subject, method: str, scales: Sequence[float], tree: Tree, trees: Sequence[Any], memory: bool) -> None:
    """
    Let two scalers take turns on up to three trees, and compare each result, and with *memory* later all of them again.

    The second tree is written into the arrays of the first if they are writable. In the third tree, arrays occur several times,
    unless the implementation works in place.
    """
    handles = [subject.create(subject.rule(init_scale=scale)) for scale in scales]
    arrays = result = None
    results = list[tuple[Any, Any]]()
    for index, values in enumerate(trees):
        arrays = tree.create(subject, values, arrays if index == 1 else None, shared=index == 2 and result is not None)
        writable = list(map(_writable, flat(arrays)))
        result = check_products(subject, handles[index % 2], method, scales[index % 2], values, arrays)
        if memory and result is not None:
            subject.expect_same(subject.to_bits(arrays, "the input"), values, f"the input of {method}")
            subject.expect(writable == list(map(_writable, flat(arrays))), f"{method} has made its input read-only")
            results.append((result, subject.to_bits(result, method)))
    if memory and len(trees) == 3:
        for other in METHODS:
            with suppress(Unsupported):  # the implementation has only one of them
                subject.call(other, handles[0], tree.create(subject, trees[0]))
        results += _results_of_overflows(subject, method, handles)
    for result, values in results:
        subject.expect_same(subject.to_bits(result, method), values, f"an earlier result of {method}")


def _results_of_overflows(subject: Subject, method: str, handles: Sequence[Any]) -> list[tuple[Any, Any]]:
    """
    Call *method* twice with non-finite values, overwrite the first result, and update all scalers.

    Return the second result and its bits; nothing if the implementation works in place.
    """
    results = list[tuple[Any, Any]]()
    inputs = [subject.to_arrays(SPOILED) for _ in range(2)]
    first, second = (subject.call(method, handles[0], arrays) for arrays in inputs)
    if first is not None:
        subject.expect_same(subject.to_bits(inputs[0], "the input"), SPOILED, f"the input of {method}")
        results.append((second, subject.to_bits(second, method)))
        map_tree(lambda array: overwritten(array, 0), first)
    for handle in (*handles, *handles):
        subject.raises("update", handle, False)  # some scalers raise an error at their lowest scale
    return results


def _writable(array: Any) -> Any:
    return getattr(getattr(array, "flags", None), "writeable", None)


def _check_method(subject: Subject, method: str) -> None:
    run_draws(subject, partial(draw_arithmetic, methods=[method], memory=False), numbered(f"{method}d tree", 24))
    run_unrecorded(subject, partial(_check_arrays, method=method))


def _check_arrays(subject: Subject, method: str) -> None:
    """Check arrays of all shapes, and arrays of numbers near the limits of their dtype at several scales."""
    for dtype in float_dtypes(subject.info):
        with suppress(Unsupported):
            handle = subject.create(subject.rule(init_scale=SCALES[3]))
            _check_shapes(subject, handle, method, dtype)
            if dtype in PARTS:
                _check_complex_nans(subject, handle, method, dtype)
    # The reciprocal of 2**127 is subnormal, which other libraries may flush to zero.
    largest_scale = 2.0**127 if subject.info.arrays == "numpy" else 2.0**100
    for scale, dtype in [*product((*SCALES[1:4], 2.0**-17, 2.0**-126, largest_scale), EDGES), *product(SCALES[2:4], PARTS)]:
        _check_array(subject, method, scale, dtype, _edges(subject.info, method, scale, dtype))
    if method == "unscale" and "division" not in subject.info.capabilities:
        return
    for scale, dtype in product(_inexact_scales(subject.info), EDGES):
        pick, top = seeded(f"{scale} {dtype}"), max(EDGES[dtype])
        patterns = [draw_number(pick, dtype) for _ in range(45)]
        largest = encode(top * scale if method == "unscale" else top / scale, dtype)
        _check_array(subject, method, scale, dtype, [*patterns, *TIES.get(dtype, ()), *range(largest - 2, largest + 3)])


def _edges(info: ImplementationInfo, method: str, scale: float, dtype: str) -> list[int]:
    """Return elements whose results are near a limit of the dtype, its largest number, and non-finite elements."""
    factor = scale if method == "unscale" else 1 / scale
    part = part_of(dtype)
    largest = decode_float(infinity(part) - 1, part)
    edges = [*(edge * factor for edge in EDGES[part]), largest]
    if info.arrays == "numpy":  # other libraries may flush subnormal numbers to zero
        edges += [ldexp(number * factor, lowest_exponent(part)) for number in SUBNORMAL]
    if part == dtype:
        return [*array(dtype, edges).bits, *non_finite_elements(dtype)]
    # Libraries multiply complex infinities in different ways, and negative numbers of which only the sign remains.
    finite = [edge for edge in edges if isfinite(rounded(edge, part))]
    return [*array(dtype, [complex(1.5, -edge) if edge < 0 else complex(edge, 1.5) for edge in finite]).bits]


def _check_shapes(subject: Subject, handle: Any, method: str, dtype: str) -> None:
    """Check arrays of all shapes, and None if that is claimed; then some arrays of one shape, also beside another dtype."""
    shapes = (*SHAPES, *LARGE[: None if dtype in ("float32", "float16") else -1])
    leaves: list[Array | None] = [Array(dtype, shape, "plain") for shape in shapes]
    leaves += [None] if "none" in subject.info.capabilities else []
    tree = Tree(leaves, list)
    check_products(subject, handle, method, SCALES[3], tree.filled(seeded(f"{method} {dtype}"), _draw_pattern))
    many = [count * (dtype,) for count in (4, 8, 16, 32, 64, 530) if dtype == "float32"]
    pairs = [(dtype, other) for other in float_dtypes(subject.info)]
    for dtypes in (*many, *pairs, *((*pair, dtype) for pair in pairs)):
        with suppress(Unsupported):  # the library lacks a dtype
            tree = Tree([Array(each, (3,), "plain") for each in dtypes], list)
            check_products(subject, handle, method, SCALES[3], tree.filled(seeded(f"{method} {dtype}"), draw_number))


def _check_complex_nans(subject: Subject, handle: Any, method: str, dtype: str) -> None:
    """Check that complex elements with a NaN part keep it; libraries multiply the other part in different ways."""
    result = subject.scaled(method, handle, [array(dtype, [complex(1.0, nan), complex(nan, 1.0)])])
    values = values_of(result[0])
    subject.expect(all(value != value for value in values), f"{method}: expected elements with a NaN, got {values}")


def _check_array(subject: Subject, method: str, scale: float, dtype: str, patterns: Sequence[int]) -> None:
    """Check an array that repeats these elements, alone and beside a float64 array and scalars; at two scales it is large."""
    if dtype not in float_dtypes(subject.info):
        return
    elements = (70 if scale in (SCALES[3], INEXACT_SCALES[0]) else 3) * tuple(patterns)
    leaf = Bits(dtype, (len(elements),), elements)
    scalars = [Bits(dtype, (), (pattern,)) for pattern in patterns[:3]]
    for tree in ([leaf], [leaf, array("float64", 1.5), *scalars]):
        with suppress(Unsupported):  # the library lacks a dtype, or the scaler rejects the scale
            check_products(subject, subject.create(supported_rule(subject, init_scale=scale)), method, scale, tree)


@case("SCALING-scale", 1, "wrong product: another scale than the scaler's, a skipped array, or a lost sign of zero")
def scales_drawn_trees(subject: Subject) -> None:
    """Let two scalers take turns."""
    _check_method(subject, "scale")


@case("SCALING-unscale-divides", 1, "wrong quotient: another scale than the scaler's, a reciprocal, or a skipped array")
def unscales_drawn_trees(subject: Subject) -> None:
    """Let two scalers take turns."""
    _check_method(subject, "unscale")


@case("SCALING-new-arrays", 1, "change in place: the argument, or the result of an earlier call, is overwritten")
def arguments_and_results_stay(subject: Subject) -> None:
    """Write other numbers into the arrays of a call before the next one. Working in place and returning None is permitted."""
    run_draws(subject, draw_arithmetic, numbered("arrays", 50))
    run_draws(
        subject, partial(draw_arithmetic, turns=(3,), count=1, dtype="float32", shapes=LARGE[:1]), numbered("one tensor", 2)
    )


@case("SCALING-layout", 1, "wrong elements: strides are ignored, or a read-only or broadcast array is written", "layout")
def takes_arrays_of_every_layout(subject: Subject) -> None:
    """Test small arrays of each dtype, larger ones, arrays without elements, and views that overlap."""
    small = product(ANY, float_dtypes(subject.info), ((21,), (6, 5)), METHODS)
    others = product(ANY[1:], ["float32"], [(33, 125), (2, 3, 4)], ["unscale"])
    axes = product(["transposed"], ["float32"], [(2, 3, 4), (3, 4, 1), (2, 1, 3, 2)], METHODS)
    numbers = product(["read-only"], float_dtypes(subject.info), [()], METHODS)
    for layout, dtype, shape, method in (*small, *others, *axes, *numbers):
        with suppress(Unsupported):  # the library has no such arrays
            draw = partial(draw_arithmetic, methods=[method], turns=(2,), count=1, layouts=[layout], dtype=dtype, shapes=[shape])
            run_draws(subject, draw, [f"{method} {layout} {dtype} {shape}"])
    for method in METHODS:
        handle = subject.create(subject.rule(init_scale=SCALES[0]))
        values = array("float32", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        if check_products(subject, handle, method, SCALES[0], [values, array("float32", [])]) is not None:  # not in place
            check_products(subject, handle, method, SCALES[0], *views(subject, values))


DRAWN = (scales_drawn_trees, unscales_drawn_trees, arguments_and_results_stay, takes_arrays_of_every_layout)
