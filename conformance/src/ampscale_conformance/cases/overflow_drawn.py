"""Drawn trees with infinities and NaNs of every kind at every index, and with finite numbers that overflow in sums."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, product
from math import prod
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import Bits, leaves, map_tree
from ..model.case import case
from ..model.draw import DrawnCase, Pick, numbered, one_in, run_draws, run_unrecorded
from ..model.floats import FORMATS, infinity, sign_bit, width
from ..model.subject import Subject
from ..oracle import tensors
from ..oracle.tensors import INTEGERS, part_of
from .trees_drawn import ANY, LARGE, NESTS, SHAPES, Tree, draw_number, draw_tree, float_dtypes, views


def draw_check(pick: Pick, info: ImplementationInfo, layouts: Sequence[str] = ANY, **options: Any) -> DrawnCase:
    """Draw up to six trees with the same containers and shapes, up to two non-finite elements in each; with `count`, one tree."""
    tree = draw_tree(pick, info, [*INTEGERS] if "integers" in info.capabilities else (), layouts, **options)
    trees = [_spoiled(pick, tree.filled(pick, _draw_finite)) for _ in range(1 if options.get("count") else pick((1, 3, 6)))]
    return DrawnCase(partial(_run, tree=tree, trees=trees), "overflow", {"tree": trees[0]} if len(trees) == 1 else {})


def _draw_finite(pick: Pick, dtype: str) -> int:
    """Draw the bit pattern of a finite number: of any, or of the largest number, the smallest subnormal number or a zero."""
    if dtype in INTEGERS:
        sign = 1 << (INTEGERS[dtype] - 1)
        return pick((pick(range(1 << 32)) % (2 * sign), sign, sign - 1, 2 * sign - 1))
    if one_in(2, pick):
        return _draw_element(pick, dtype, (infinity(part_of(dtype)) - 1, 1, 0))
    return draw_number(pick, dtype)


def non_finite(dtype: str) -> tuple[int, ...]:
    """Return the patterns of a quiet NaN, infinity, a signaling NaN, and the NaN with all bits set, without the sign."""
    part = part_of(dtype)
    fraction_bits = FORMATS[part][1]
    fractions = (1 << (fraction_bits - 1), 0, 1, (1 << fraction_bits) - 1)
    return tuple(infinity(part) | fraction for fraction in fractions)


def non_finite_elements(dtype: str) -> list[int]:
    """Return the bit patterns of a non-finite value of each kind and sign; of a complex dtype, in either part."""
    part = part_of(dtype)
    signed = [sign | pattern for sign in (0, sign_bit(part)) for pattern in non_finite(dtype)]
    return signed if part == dtype else [pattern << shift for shift in (0, width(part)) for pattern in signed]


def _draw_element(pick: Pick, dtype: str, magnitudes: Sequence[int]) -> int:
    """Draw an element that has one of these bit patterns, with a sign; for a complex dtype, in either part."""
    part = part_of(dtype)
    pattern = pick((0, sign_bit(part))) | pick(magnitudes)
    if part == dtype:
        return pattern
    other = pick((draw_number(pick, part), pattern))
    first, second = (other, pattern) if one_in(2, pick) else (pattern, other)
    return (first << width(part)) | second


def _spoiled(pick: Pick, values: Any) -> Any:
    """Return the tree with up to two non-finite elements."""
    candidates = [path for path, leaf in leaves(values) if leaf is not None and leaf.bits and leaf.dtype not in INTEGERS]
    chosen = [pick((candidates[-1], pick(candidates))) for _ in range(pick((1, 0, 1, 2)))] if candidates else []
    paths = iter([path for path, leaf in leaves(values) if leaf is not None])
    return map_tree(lambda leaf: _spoil(pick, leaf, chosen.count(next(paths))), values)


def _spoil(pick: Pick, leaf: Bits, times: int) -> Bits:
    """Return the array with up to *times* non-finite elements: the first, the last, one at the edge of a block, or any other."""
    last = len(leaf.bits) - 1
    for _ in range(times):
        index = pick((0, last, max(last // 1024 * 1024 - 1, 0), last // 1024 * 1024, pick(range(last + 1))))
        pattern = _draw_element(pick, leaf.dtype, non_finite(leaf.dtype))
        leaf = Bits(leaf.dtype, leaf.shape, (*leaf.bits[:index], pattern, *leaf.bits[index + 1 :]))
    return leaf


def _run(subject: Subject, tree: Tree, trees: Sequence[Any]) -> None:
    """Check the trees in order. Every second one is written into the arrays of the previous tree if they are writable."""
    arrays = None
    for index, values in enumerate(trees):
        arrays = tree.create(subject, values, arrays if index % 2 else None)
        flag = subject.flag(subject.call("all_finite", arrays), "all_finite")
        expected = tensors.all_finite(values)
        subject.expect(flag == expected, f"all_finite: expected {expected}, got {flag}")
        subject.expect_same(subject.to_bits(arrays, "the input"), values, "the input of all_finite")


@case("OVERFLOW-all-finite", 1, "incomplete check: a value, an index, an array or a later call is missed, or the input changes")
def checks_drawn_trees(subject: Subject) -> None:
    """Check non-finite values of every kind at every index, between numbers whose sums, squares and differences overflow."""
    run_unrecorded(subject, _check_places)
    for layout, dtype in product(ANY[1:], float_dtypes(subject.info)):
        shape = (33, 125) if dtype == "float32" else (6, 5)
        with suppress(Unsupported):  # the library has no such arrays
            draw = partial(draw_check, count=1, layouts=[layout], dtype=dtype, shapes=[shape])
            run_draws(subject, draw, numbered(f"{layout} {dtype}", 2))
    run_draws(subject, draw_check, numbered("check", 70))
    if "layout" in subject.info.capabilities:
        values, arrays = views(subject, Bits("float32", (6,), (1, 1, 1, 1, infinity("float32"), 1)))
        flags = [subject.flag(subject.call("all_finite", tree), "all_finite") for tree in (arrays[:1], arrays)]
        subject.expect(flags == [True, False], f"all_finite: expected True for {values[0]}, False with {values[1]}, got {flags}")


def _check_places(subject: Subject) -> None:
    """Check trees with one non-finite element: of each kind and dtype, at each index, and in each place in the containers."""
    for text, tree in _places(subject.info):
        with suppress(Unsupported):  # the library lacks the dtype
            flag, expected = subject.all_finite(tree), tensors.all_finite(tree)
            subject.expect(flag == expected, f"all_finite: expected {expected} for {text}, got {flag}")


def _places(info: ImplementationInfo) -> Iterator[tuple[str, Any]]:
    """Yield trees with descriptions: at most one array has a non-finite element, beside small or the largest numbers."""
    yield from _places_in_containers(info)
    one, infinite = (Bits("float32", (1,), (pattern,)) for pattern in (1, infinity("float32")))
    yield "256 infinities", 256 * [infinite]
    # Near the numbers of arrays that one launch of a kernel takes, such as 64, 110 or 320.
    for nest, bad in zip(2 * NESTS, (64, 110, 256, 320, 512, 529, 529, 511, 528, 527, 257, 63), strict=True):
        yield f"an infinity in array {bad} of 530", nest([*bad * [one], infinite, *(529 - bad) * [one]])
    for count in (4, 8, 16, 32, 64, 128):
        yield f"an infinity in the last of {count} arrays", [*(count - 1) * [one], infinite]
    for dtype, other in product(float_dtypes(info), repeat=2):
        zero = Bits(other, (1,), (0,))
        yield f"the largest {dtype} between zeros in {other}", [zero, Bits(dtype, (1,), (_largest(dtype)[0],)), zero]
    for dtype in float_dtypes(info):
        yield f"a large array of the largest {dtype}", Bits(dtype, LARGE[3], prod(LARGE[3]) * (_largest(dtype)[0],))
    beside = [Bits("bool", (1,), (1,))] if "integers" in info.capabilities else []
    for dtype, shape, index, pattern in _places_in_arrays(float_dtypes(info)):
        elements = (_largest(dtype) * (prod(shape) // 4 + 1))[: prod(shape)]
        if elements:
            elements[index] = pattern
        leaf = Bits(dtype, shape, tuple(elements))
        yield f"{dtype} {pattern:x} at {index} of {shape}", [*beside, leaf] if index else leaf


def _places_in_containers(info: ImplementationInfo) -> Iterator[tuple[str, Any]]:
    """Yield names and trees: five arrays, of which one is infinite, with and without None among them; then no arrays."""
    for nest, bad, missing in product(NESTS, range(5), (False, True) if "none" in info.capabilities else (False,)):
        children = [Bits("float32", (1,), (infinity("float32") if index == bad else 1,)) for index in range(5)]
        before = bad - 1  # None precedes the array before the infinite one; -1 is the last array
        yield f"{children}", nest([*children[:before], None, *children[before:]] if missing else children)
    if {"none", "empty"} <= {*info.capabilities}:
        yield "a tree without arrays", {"a": [None]}


def _places_in_arrays(dtypes: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
    """Yield dtypes, shapes, indices, and the element at the index: a non-finite one, or one of the largest numbers."""
    for dtype, (shape, index) in product(dtypes, (((), 0), ((3,), 0), ((3,), 1), ((3,), 2))):
        yield from ((dtype, shape, index, pattern) for pattern in non_finite_elements(dtype))
    for shape in SHAPES:
        yield from (("float32", shape, index, infinity("float32")) for index in range(prod(shape)))
    kinds = {dtype: cycle(non_finite_elements(dtype)) for dtype in dtypes}
    for dtype, shape in product(dtypes, (*SHAPES, *LARGE[1:4:2])):
        yield dtype, shape, prod(shape) - 1, next(kinds[dtype])
    for dtype, shape in product(dtypes, ((), LARGE[1])):
        yield from ((dtype, shape, 0, number) for number in _largest(dtype)[1:3])
    for dtype, shape in (*product(["float32"], LARGE), ("float16", LARGE[-1]), ("float64", LARGE[-1])):
        last = prod(shape) - 1
        edge = min(last // 1024 * 1024, 2**16)  # of a block
        indices = (0, last // 2, max(edge - 1, 0), edge, last)
        for index in indices[2:] if edge == 2**16 else indices:
            yield dtype, shape, index, next(kinds[dtype])


def _largest(dtype: str) -> list[int]:
    """Return the largest number twice, and its negative twice, so that sums, differences and squares overflow."""
    part = part_of(dtype)
    largest = infinity(part) - 1
    patterns = [largest, largest, sign_bit(part) | largest, sign_bit(part) | largest]
    return patterns if part == dtype else [(pattern << width(part)) | pattern for pattern in patterns]
