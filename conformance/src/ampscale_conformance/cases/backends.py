"""Chapter 70, backends, and related requirements on the step: host reads, compilation, another process."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import cycle, islice, pairwise, product
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import Bits, arrays, leaves, map_tree
from ..model.case import case, named
from ..model.draw import DrawnCase, Pick, numbered, run_draws, seeded
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle import tensors
from ..oracle.machine import Machine, trajectory
from ..oracle.tensors import array
from .backends_host_reads import Observed
from .backends_process import scales_elsewhere
from .calls_drawn import LIMIT, Draw, draw_calls, draw_rules, run_with_top
from .calls_loop import needs_power_of_two, simple_rule
from .machine_drawn import draw_trace
from .machine_lockstep import LARGEST
from .replicas import STARTS, draw_replicas
from .scaling_trees import check_containers, expected_tree
from .step_drawn import MISSING, NARROW_CELLS, draw_training
from .trees_drawn import ANY, LAYOUTS, with_layout

Leaf = tuple[str, tuple[int, ...]]  # a dtype and a shape
SHAPES = ((300,), (), (2, 3), (0, 3), (1,), (300,))
TINY = 1e-9  # replaced in float16 arrays by a number whose quotient lies halfway between two subnormal numbers
NUMBERS = (8.08, -24.24, 0.0, 12.12, -0.0, TINY, 20.2)  # they use all digits of each dtype
FIRST: tuple[Leaf, ...] = (("float32", (2,)), ("float32", ()))  # the first arrays of each tree
NARROW: Leaf = ("float16", (7,))  # another array, with all NUMBERS
LARGE = {"float16": 2.0**15, "float64": 2.0**1023}  # 2**127 for other dtypes; divided by a scale of 0.5, they are infinite
LEAST = 2.0**-10  # smallest scale of a step: float16 quotients of NUMBERS are finite
TREES: dict[str, Callable[[list[Any]], Any]] = {
    "list": lambda items: items,
    "dict": lambda items: {"b": items[:1], "a": {"c": items[1:]}},
    "tuple": lambda items: (items[1:], items[0]),
}
MIXED = (("float32", (2, 3)), ("float16", (3,)), ("float32", ()))
SPECIAL = [
    array("float16", [3.0, -0.0, 2.0**-24, math.inf, 183 * 2.0**-20]),
    array("float32", [1.1, 2.0**-100, 2.0**-120, 3e38, math.nan]),
]
# Arrays of a step in which an element, or all of them, are of one of KINDS.
PLACES = ((0,), (1,), (2,), (3,), (4,), (5,), (6,), (0, 1), (2, 3), (4, 5), (5, 6))
KINDS = (math.inf, -math.inf, math.nan, "large")
LONG = "+-++-+--+++---++++-+"  # steps of each of many scalers
FLAGS = [sign == "+" for sign in "+-----++++++--+"]  # finite flags of the scalers that another process loads


def draw_on_arrays(
    pick: Pick, info: ImplementationInfo, compiled: bool = False, top: bool = False, every: bool = False
) -> DrawnCase:
    """Draw steps on one tree, some of which overflow: of two scalers, or of as many as `LIMIT` allows if *every* is True."""
    claims = info.capabilities
    settings, others = draw_rules(pick, info, STARTS, top), draw_rules(pick, info, STARTS, top)
    other = pick([pick(settings), others[0]])
    settings = [*settings, *others][: LIMIT.get(info.arrays, 7)] if every else [settings[0], other]
    dtypes = ["float32", "float16"]
    dtypes += ["bfloat16"] if "bfloat16" in claims else []
    dtypes += ["float64"] if info.arrays != "jax" else []
    count = 1 if every else pick((1, 2, 3, 6))
    tree: list[Leaf | None] = [*FIRST]
    tree += [NARROW] if "float16" in claims else []
    tree += [(pick(dtypes), pick(SHAPES)) for _ in range(count)]
    tree += [None] if "none" in claims else []
    ways = ["update"]
    ways += 3 * ["arrays"] if "stays-on-device" in claims else []
    ways += ["load"] if "resume" in claims else []
    kinds, elements = ("", "empty", "", *KINDS), (-1, 0, 1, -1)
    turns = [(pick((0, 0, 1)), pick(kinds)) for _ in range(20)]
    if every:
        turns = [(index, "" if sign == "+" else pick(KINDS)) for sign in LONG for index in range(len(settings))]
        if "growth_interval" in settings[-1]:
            settings[-1] = settings[-1] | {"growth_interval": 17}
            turns += 36 * [(len(settings) - 1, "")]
    steps = [(pick(ways), index, kind, pick(PLACES), pick(elements)) for index, kind in turns]
    layout = pick([*TREES])
    return DrawnCase(partial(_follow, settings=settings, tree=tree, layout=layout, steps=steps, compiled=compiled))


def _follow(subject: Subject, settings: Any, tree: Sequence[Any], layout: str, steps: Sequence[Any], compiled: bool) -> None:
    """Take the steps, compiled or not. To load a compiled scaler, load its state uncompiled, save that, and load it compiled."""
    rules = [subject.rule(**constants) for constants in settings]
    forms = [subject.compiled(), subject] if compiled else [subject]
    form = forms[0]
    machines = [Machine(rule) for rule in rules]
    handles = [forms[0].create(rule) for rule in rules]
    widens = any(leaf and leaf[0] == "float16" for leaf in tree) and _widens(subject, rules[0])
    varies = "layout" in subject.info.capabilities and not compiled  # torch compiles a function for each order of the elements
    names = LAYOUTS.get(subject.info.arrays, ANY[:1]) if varies else ANY[:1]
    layouts = cycle([name for name in names if name not in ("broadcast", "read-only")])  # a step may work in place
    earlier_result: Any = []
    earlier_bits: Any = []
    for number, (way, index, kind, places, element) in enumerate(steps):
        when = f"step {number} (counted from 0) of scaler {index}, {way}"
        scale = machines[index].point.scale
        if not LEAST <= scale <= LARGEST:
            return
        needs_power_of_two(scale, subject)
        scaled = TREES[layout](_tree(tree, number, kind, places, element, scale))
        unscaled = [tensors.unscale(leaf, scale, "float32" if widens else None) for leaf in arrays(scaled)]
        finite = tensors.all_finite(scaled) and tensors.all_finite(unscaled)
        if machines[index].step(finite).stopped:
            return
        if way == "load":
            for saver, loader in pairwise((*forms, form)):
                handles[index] = loader.call("load", rules[index], saver.call("save", handles[index]))
        if way == "arrays":
            comparable = finite and scale <= 2.0**96  # divided by a larger scale, the smallest of NUMBERS is subnormal
            arguments = map_tree(lambda leaf: with_layout(subject, leaf, next(layouts)), scaled)
            handles[index], result, bits = _step(form, handles[index], arguments, scaled, scale if comparable else None, when)
            is_unchanged = subject.to_bits(earlier_result, when) == earlier_bits
            subject.expect(is_unchanged, f"{when}: the result of an earlier step has changed")
            earlier_result, earlier_bits = result, bits
        else:
            handles[index] = form.update(handles[index], finite)
        scales = [rounded(form.read_scale(handle), rule.dtype) for handle, rule in zip(handles, rules, strict=True)]
        expected = [machine.point.scale for machine in machines]
        subject.expect(scales == expected, f"after {when}: expected the scales {expected} of both scalers, got {scales}")


def _widens(subject: Subject, rule: Any) -> bool:
    """Return True if a step on arrays returns float16 arrays in float32, in which their quotients can be finite."""
    if "stays-on-device" not in subject.info.capabilities:
        return False
    _, unscaled = subject.call("step_on_arrays", subject.create(rule), subject.to_arrays([array("float16", [1.0])]))
    return "float32" in [leaf.dtype for leaf in arrays(subject.to_bits(unscaled, "step_on_arrays"))]


def _step(subject: Subject, handle: Any, tree: Any, scaled: Any, scale: float | None, when: str) -> tuple[Any, Any, Any]:
    """
    Return the next handle, and the unscaled tree as arrays and as `Bits`.

    The tree is compared with *scaled* divided by *scale*, unless *scale* is None.
    """
    handle, unscaled = subject.call("step_on_arrays", handle, tree)
    result = subject.to_bits(unscaled, "step_on_arrays")
    if scale is not None:
        subject.expect_same(result, expected_tree(tensors.unscale, scale, scaled, result), f"{when}: unscaled")
        check_containers(subject, result, scaled, when)
    if not any(getattr(leaf, "is_deleted", bool)() for leaf in arrays(tree)):
        permitted = {*leaves(scaled), *leaves(result)}  # arrays may be written in place, all or some
        changed = [path for path, leaf in leaves(subject.to_bits(tree, when)) if (path, leaf) not in permitted]
        subject.expect(not changed, f"{when}: expected the argument at {changed} to be unchanged or the result")
    return handle, unscaled, result


def _tree(
    tree: Sequence[Leaf | None], number: int = 0, kind: Any = "", places: Any = (0,), element: int = 0, scale: float = 1.0
) -> list[Any]:
    """
    Return the arrays of a step.

    In the arrays at *places*, *kind* replaces the element with the index *element*, or all elements if it is "large". If
    *kind* is "empty", no array has elements.
    """
    if kind == "empty":
        tree = [None if leaf is None else (leaf[0], (0,)) for leaf in tree]
    nonempty = [index for index, leaf in enumerate(tree) if leaf and math.prod(leaf[1])]
    replaced = {nonempty[place % len(nonempty)] for place in places if nonempty}
    tiny = min(3 * 2.0**-25 * scale, 1.0)
    kinds = [kind if index in replaced else "" for index in range(len(tree))]
    pairs = zip(tree, kinds, strict=True)
    return [None if leaf is None else _array(*leaf, number % 7, special, element, tiny) for leaf, special in pairs]


@lru_cache(1024)  # trees have arrays in common
def _array(dtype: str, shape: tuple[int, ...], start: int, kind: Any, element: int, tiny: float) -> Bits:
    values: list[Any] = list(islice(cycle(NUMBERS), start, start + math.prod(shape)))
    if dtype == "float16":
        values = [tiny if value == TINY else value for value in values]
    if kind == "large":
        values = [LARGE.get(dtype, 2.0**127)] * len(values)
    elif kind:
        values[element % len(values)] = kind
    return array(dtype, [complex(1.0, value) for value in values] if dtype == "complex64" else values, shape)


@case("BACKENDS-no-host-sync", 4, "hidden synchronization: a flag or a scale is copied to the host", "stays-on-device")
def a_step_on_arrays_reads_nothing(subject: Subject) -> None:
    """Take steps with growths, an infinity and a NaN on two trees, and then steps on many arrays."""
    reads: list[str] = []
    observed = Subject(Observed(subject.adapter, reads), "", subject.calls)
    handle = observed.create(simple_rule(observed, growth_interval=1))
    claims = observed.info.capabilities
    mixed: tuple[Leaf, ...] = (*MIXED, ("float32", (2, 1, 3)))
    if "bfloat16" in claims:
        mixed += (("bfloat16", (2,)),)
    for number, kind in enumerate(("", "", math.inf, "", math.nan, *[""] * 6)):
        if number == 5:
            mixed = 3 * mixed
        tree = TREES["list" if number % 2 else "dict"](_tree(mixed, number, kind, (number,), 0))
        handle, _ = observed.call("step_on_arrays", handle, observed.to_arrays(tree))
    subject.expect(not reads, f"expected no read on the host, got {len(reads)}: {', '.join(reads)}")


@case("OVERFLOW-complex", 4, "missing part: the step on arrays does not check imaginary parts", "stays-on-device", "complex")
def a_step_on_arrays_sees_both_parts(subject: Subject) -> None:
    """Replace either part of the last element by each non-finite value, after a finite array."""
    rule = simple_rule(subject)
    expected = trajectory(rule, [False])[-1].scale
    for kind, swapped in product(KINDS[:3], (False, True)):
        value = complex(1.0, kind) if swapped else complex(kind, 1.0)
        tree = subject.to_arrays([array("float32", [1.0]), array("complex64", [1.0, value])])
        handle, _ = subject.call("step_on_arrays", subject.create(rule), tree)
        scale = rounded(subject.read_scale(handle), rule.dtype)
        subject.expect(scale == expected, f"after a step with {value}: expected scale {expected}, got {scale}")


def _rules(subject: Subject, first: Any, *seeds: str) -> list[Any]:
    """Return the rule *first*, and the rules drawn with *seeds* that the implementation supports."""
    rules = [first]
    for seed in seeds:
        with suppress(Unsupported):
            rules.append(subject.rule(**draw_rules(seeded(seed), subject.info, STARTS)[0]))
    return rules


@case("STEP-compiled", 4, "different bits: the compiler changes the product, the division or a dtype", "jit")
def compiled_it_unscales_to_the_same_bits(subject: Subject) -> None:
    """Compare special values in several dtypes and shapes, at the scales of several scalers."""
    rules, compiled = _rules(subject, simple_rule(subject), "scales 1"), subject.compiled()
    for scale in (3.0 * 2.0**20 + 1, 1952.0, 4098.0):
        with suppress(Unsupported):
            rules.append(simple_rule(subject, init_scale=scale))
    handles = [(subject.create(rule), compiled.create(rule)) for rule in rules]
    special = [*SPECIAL, array("float64", NUMBERS)] if subject.info.arrays != "jax" else SPECIAL
    trees = (special, _tree(MIXED), _tree(MIXED[1:] + MIXED[:1], 2), TREES["dict"](_tree(MIXED)))
    for method, tree, (handle, other) in product(("unscale", "scale"), trees, handles):
        expected = subject.scaled(method, handle, tree)
        subject.expect_same(compiled.scaled(method, other, tree), expected, f"{method}, compiled")


@case("STEP-compiled", 4, "different flag: the compiler assumes finite numbers, or replaces the check by a sum", "jit")
def compiled_it_sees_the_same_overflows(subject: Subject) -> None:
    """Check trees with a value of one kind at the first or the last index of an array, without elements, and without arrays."""
    compiled, claims = subject.compiled(), subject.info.capabilities
    others = {"float64": subject.info.arrays != "jax", "bfloat16": "bfloat16" in claims, "complex64": "complex" in claims}
    mixed = (*MIXED, *((dtype, (2,)) for dtype, is_supported in others.items() if is_supported))
    choices = product(("", "empty", *KINDS), range(len(mixed)), (0, -1))
    trees = [_tree(mixed, 0, kind, (leaf,), element) for kind, leaf, element in choices]
    trees += [_tree(3 * mixed, 0, math.inf, (3 * len(mixed) - 1,))]
    if subject.info.arrays != "torch":  # which does not compile functions without tensors
        trees += [[]] if "empty" in claims else []
        trees += [[None], [None, *SPECIAL[:1]], [*SPECIAL[:1], None]] if "none" in claims else []
    for tree in trees:
        expected, flag = subject.all_finite(tree), compiled.all_finite(tree)
        subject.expect(flag == expected, f"all_finite, compiled: expected {expected}, got {flag}")


@case("STEP-resume", 4, "lost state: part of the state is not saved and stays in the process", "resume", "process")
def another_process_goes_on(subject: Subject) -> None:
    """Save several scalers at the start and after each of some steps, and continue in another process."""
    rules = _rules(subject, simple_rule(subject, growth_interval=3), "process 0", "process 4", "process 15")
    runs, expected = list[Any](), list[list[float]]()
    for rule in rules:
        points = [point.scale for point in trajectory(rule, FLAGS) if not point.stopped]
        handle = subject.create(rule)
        for number in range(len(points) - 1):
            runs.append((rule, subject.call("save", handle), FLAGS[number : min(number + 6, len(points) - 1)]))
            expected.append(points[number + 1 : number + 7])
            handle = subject.update(handle, FLAGS[number])
    for run, scales, target in zip(runs, scales_elsewhere(subject, runs), expected, strict=True):
        actual = [rounded(scale, run[0].dtype) for scale in scales]
        subject.expect(actual == target, f"in another process, state {runs.index(run)}: expected scales {target}, got {actual}")


def _check_compiled_steps(subject: Subject) -> None:
    """Run few drawn cases, since compilation is slow, and fewest with torch, which compiles a function for at most 8 rules."""
    run_with_top(subject, partial(draw_on_arrays, compiled=True, every=True), ["compiled 25"])
    draws: list[tuple[Draw, list[str]]] = [
        (partial(draw_training, every="float64,float32", end="h"), ["cells 19"]),
        NARROW_CELLS,
        (draw_trace, ["trace 48", "trace 119"]),
        (draw_replicas, ["replicas 29"]),
        (draw_calls, numbered("calls", 15)),
    ]
    if subject.info.arrays != "torch":
        draws += [(draw_training, ["cells 12"]), (MISSING[0], ["missing 13"]), (draw_replicas, ["replicas 13"])]
    for draw, seeds in draws:
        with suppress(Unsupported):
            run_draws(subject.compiled(), draw, seeds)


CASES = (
    a_step_on_arrays_reads_nothing,
    named(
        "BACKENDS-same-run/a-step-on-arrays-is-the-same-step",
        4,
        "different step: on arrays, the gradients, the flag or the scale differ from the rule's",
        partial(
            run_with_top,
            draw=draw_on_arrays,
            seeds=[*numbered("steps on arrays", 11), "steps on arrays 20", "steps on arrays 38"],
            others=[(partial(draw_on_arrays, every=True), ["arrays 26"])],
        ),
        {"stays-on-device"},
    ),
    a_step_on_arrays_sees_both_parts,
    named(
        "STEP-compiled/compiled-it-moves-to-the-same-scales",
        4,
        "lost constant: min_scale, growth_interval or a count has no effect when compiled, or the scale is one from compilation",
        _check_compiled_steps,
        {"jit"},
    ),
    compiled_it_unscales_to_the_same_bits,
    compiled_it_sees_the_same_overflows,
    another_process_goes_on,
)
