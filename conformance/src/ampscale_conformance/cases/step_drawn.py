"""Chapters 40 and 50: a training cell next to the oracle's, and drawn runs, which combine settings, options and gradients."""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache, partial
from itertools import chain, cycle, islice, product
from typing import Any, NamedTuple

from ampscale import LossScaleRule

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import Bits
from ..model.case import Case, named
from ..model.draw import DrawnCase, Pick, one_in
from ..model.floats import Number, is_power_of_two, rounded
from ..model.subject import Raised, Subject
from ..oracle.step import Outputs, Training
from ..oracle.tensors import array, numbers
from .calls_drawn import DTYPES, LIMIT, draw_rules, drawn
from .calls_loop import SHAPES, Shape, needs_finite, needs_power_of_two, new_gradients, new_parameters, simple_rule
from .rows import Row

NEAR = 1e-5  # relative tolerance, for different formulas and roundings of published implementations
CLIPPED = 1e-4  # absolute tolerance of clipped parameters, for the epsilon of the formulas in each step
ROUNDED = {"float16": (2.0**-8, 2.0**-4), "bfloat16": (2.0**-5, 2.0**-3)}  # both tolerances of parameters that are rounded
LEAST_INFINITE = 65520  # the least number that float16 rounds to infinity
STEPS = 10  # of a run, in which the trace is repeated
EXACT_STEPS = 20  # float32 velocities of longer runs are rounded, float64 ones are not
# The letters of a trace besides "+", a finite step: an overflow in one element ("-"), the last ("e") or two ("="), finite data
# that just overflow when they are multiplied by the scale ("!"), and gradients of which one element ("w") or all have another
# magnitude; the sum of two gradients of "x" overflows while they are scaled, and "l" leaves float16 gradients as they are.
# The loss does not depend on one parameter ("n", and "m" with an overflow) or on any ("N").
KINDS = {"-": "inf", "=": "inf+two", "!": "huge", "w": "wide", "x": "large", "e": "inf+last"}
KINDS |= {"n": "some", "m": "some+inf+two", "N": "none"}
FACTORS = {"t": 2.0**-60, "l": 2.0**60, "0": 0.0, "h": 2.0**70, "s": 2.0**8, "u": 2.0**-16, "v": 2.0**-80}
OUTPUTS = {"loss": "loss", "global_norm": "norm", "learning_rate": "schedule", "attempted": "counters", "applied": "counters"}
BOOLS = (False, True)
VARYING = ("next_scale", "learning_rate", "applied")  # outputs that depend on what a step without gradients does
CLAIMS = OUTPUTS | {"max_norm": "clip", "momentum": "momentum"}  # capabilities that outputs and options require
RATES = (0.5, 0.25, 0.0, 0.125, 0.5, 1.0, 0.25, 0.5, 0.125, 1.0)  # one for each step, since further rates are not specified
FINE = tuple(rate * (1 + 2.0**-12) for rate in RATES)  # rates of 13 bits
# Options in which a second cell can differ from the first one.
OTHERS = (*(("learning_rate", rate) for rate in (0.0, 0.0625, RATES[::-1])), ("momentum", 0.75), ("max_norm", 2.0))
LIMITS = (1.0, 128.0, 0.25, 3.0, 6.0, 2.0**-10)  # values of max_norm
SCHEDULES = {"rates": RATES[:7], "fine": FINE[:7]}


class Step(NamedTuple):
    """Step of a training cell."""

    data: Sequence[Bits | None]
    outputs: Mapping[str, Any] | None  # None if it raised the error of the published scaler
    expected: Outputs


class Cell:
    """Training cell under test, next to the oracle's. Clipped parameters may differ by `CLIPPED`, since formulas differ."""

    def __init__(
        self, subject: Subject, rule: Any, parameters: Sequence[Bits], shared: dict[Any, Any] | None = None, **options: Any
    ) -> None:
        """Create the cell with the arrays and the list of learning rates in *shared*, to which missing ones are added."""
        options = {"learning_rate": 1.0, **options}
        shared = {} if shared is None else shared
        self.subject = subject
        self.tolerance = CLIPPED if "max_norm" in options else 0.0
        self.trainings = [Training(rule, parameters, **options)]
        if isinstance(rates := options["learning_rate"], tuple):
            if "momentum" in options:  # both formulas are permitted, whose results differ if the learning rate changes
                self.trainings.append(Training(rule, parameters, **options))
                self.trainings[1].optimizer.rate_first = True
            options["learning_rate"] = shared.setdefault(rates, list(rates))
        arrays = shared.setdefault(tuple(parameters), subject.to_arrays(list(parameters)))
        self._cell = subject.call("create_cell", rule, arrays, **options)
        self.has_raised = False  # the error of the published scaler, after which a cell need not take further steps

    @property
    def scale(self) -> float:
        """Return the expected scale of the next step."""
        return self.trainings[0].machine.point.scale

    def train(self, data: Sequence[Bits | None]) -> Step:
        """Take one step, and compare only the data, which must be unchanged."""
        if self.trainings[0].without_gradients is None and not any(data):  # the first such step, for which there are variants
            self.trainings = [_with_variant(training, *flags) for training, *flags in product(self.trainings, BOOLS, BOOLS)]
        expected = [training.step(data) for training in self.trainings]
        arrays = self.subject.to_arrays(list(data))
        try:
            returned = self.subject.call("train_step", self._cell, arrays)
        except Raised as error:
            if expected[0].status == "WOULD_RAISE":
                self.has_raised = True
                return Step(data, None, expected[0])
            if self.has_raised or None in data:
                raise Unsupported(str(error)) from None
            raise
        self.subject.expect_same(self.subject.to_bits(arrays, "the data"), list(data), "the data after train_step")
        outputs = returned if isinstance(returned, Mapping) else {}
        pairs = [*zip(self.trainings, expected, strict=True)]
        agreeing = [pair for pair in pairs if len(pairs) == 1 or self._agrees(outputs, pair[1])] or pairs[:1]
        self.trainings = [training for training, _ in agreeing]  # from now on, follow the variants of the implementation
        return Step(data, outputs, agreeing[0][1])

    def _agrees(self, outputs: Mapping[str, Any], expected: Outputs) -> bool:
        """Return True if the outputs in which variants can differ are the expected ones."""
        names = [name for name in VARYING if OUTPUTS.get(name) in (None, *self.subject.info.capabilities)]
        pairs = [(self.subject.number(outputs.get(name), name), getattr(expected, name)) for name in names]
        return self._parameters(outputs, expected) == expected.parameters and all(_is_close(*pair, NEAR, 0.0) for pair in pairs)

    def _parameters(self, outputs: Mapping[str, Any], expected: Outputs) -> Any:
        """Return the actual parameters. Each array within the tolerance is replaced by the expected one."""
        actual = self.subject.to_bits(outputs.get("parameters"), "parameters")
        targets = expected.parameters
        if not (self.tolerance and isinstance(actual, list | tuple) and len(actual) == len(targets)):
            return actual
        return [target if self._near(leaf, target) else leaf for leaf, target in zip(actual, targets, strict=True)]

    def _near(self, actual: Any, expected: Bits) -> bool:
        if not isinstance(actual, Bits) or (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            return False
        relative, absolute = ROUNDED.get(expected.dtype, (NEAR, self.tolerance))
        return all(_is_close(*pair, relative, absolute) for pair in zip(numbers(actual), numbers(expected), strict=True))

    def expect(self, step: Step, names: Iterable[str], when: str) -> None:
        """Compare the outputs of these names, if the step has outputs, with the expected ones."""
        expected = step.expected
        if step.outputs is None:
            return
        for name in names:
            output, target, label = step.outputs.get(name), getattr(expected, name), f"{when}: {name}"
            if name == "parameters":
                self._expect_parameters(step.outputs, expected, label)
            elif name == "finite":
                flag = self.subject.flag(output, label)
                self.subject.expect(flag == target, f"{label}: expected {target}, got {flag}")
            elif name == "attempted" and self.has_raised:
                continue  # the step that raised the error can count or not
            elif name != "global_norm" or (expected.finite and target < math.inf and any(step.data)):
                number = self.subject.number(output, label)
                error = self._error_of_loss(step.data) if name == "loss" else 0.0
                same = error == math.inf or _is_close(number, target, NEAR, error)
                self.subject.expect(same, f"{label}: expected {target!r}, got {number!r}")

    def _expect_parameters(self, outputs: Mapping[str, Any], expected: Outputs, label: str) -> None:
        # The seed has the dtype of the loss, so a float64 loss may have a scale that float32 would round.
        has_float64 = any(leaf.dtype == "float64" for leaf in expected.parameters)
        same_seed = not has_float64 or rounded(expected.scale, "float32") == expected.scale
        needs_power_of_two(expected.scale, self.subject if same_seed else None)
        self.subject.expect_same(self._parameters(outputs, expected), expected.parameters, label)

    def _error_of_loss(self, data: Sequence[Bits | None]) -> float:
        """Return the permitted error of the loss: infinity if a term is infinite or NaN in some formulas or dtypes only."""
        leaves = [leaf for leaf in data if leaf]
        values = [abs(float(value)) for leaf in leaves for value in numbers(leaf)]
        finite = [value for value in values if math.isfinite(value)]
        largest = max(finite, default=0.0)
        narrow = any("float16" in leaf.dtype for leaf in leaves)
        if len(finite) == len(values) and largest > (2.0**9 if narrow else 2.0**122):
            return math.inf  # the sum may overflow
        if len(finite) < len(values) and self.tolerance:
            return math.inf  # 0 times infinity is NaN in one formula, and 0 in another
        return (16 if narrow else 10 * self.tolerance) * largest  # in float16, each term and each sum are rounded


def _with_variant(training: Training, updates: bool, counts: bool) -> Training:
    copied = deepcopy(training)
    copied.without_gradients = updates, counts
    return copied


def _is_close(actual: Number, expected: Number, relative: float, absolute: float) -> bool:
    """Return True if the numbers differ by at most the larger of the two errors, or both are NaN."""
    both_nan = math.isnan(actual) and math.isnan(expected)
    return both_nan or math.isclose(actual, expected, rel_tol=relative, abs_tol=absolute)


@lru_cache(1024)  # cells take steps with the same data
def data_of(layout: Sequence[Shape], letter: str, number: int, scale: float, dtype: str = "float32") -> list[Bits | None]:
    """Return the data for a letter of a trace at this scale. The order of the values depends on *number*."""
    if letter in "nm" and len(layout) == 1:
        letter = "-"  # both set one gradient to None; without the only one, the step would have no gradients
    gradients = new_gradients(layout, KINDS.get(letter, ""), number)
    limit = 2.0**16 if "float16" in dtype else 2.0**128  # smallest power of two that overflows
    # Once scaled, the gradients of "!", 2**127, reach the limit, and those of "x", about 2**128, three quarters of it.
    factors = FACTORS | {"!": limit / 2.0 ** (126 + math.frexp(scale)[1]), "x": 0.75 * limit / 2.0**128 / scale}
    data = list[Bits | None]()
    for name, leaf in zip(cycle(dtype.split(",")), gradients, strict=False):
        factor = 1.0 if letter == "l" and name == "float16" else factors.get(letter, 1.0)
        data.append(None if leaf is None else array(name, [float(value) * factor for value in numbers(leaf)], leaf.shape))
    return data


def step_case(row: Row) -> Case:
    """Return the case of a row: a trace, which is repeated, with the `outputs` to compare, and other options."""
    options: dict[str, Any] = {name: SCHEDULES.get(value, value) for name, value in row.options.items()}
    names = options.pop("outputs", "parameters").split(",")
    dtype = options.pop("dtype", "float32")
    trace = islice(cycle(row.script), max(options.pop("steps", STEPS), len(row.script)))
    arrays = {"shapes": SHAPES[options.pop("layout", "a")], "dtype": dtype, "factor": options.pop("factor", 1.0)}
    constants = ("growth_interval", "init_scale", "min_scale")
    settings: dict[str, Any] = {name: options.pop(name) for name in constants if name in options}
    run = partial(_take_steps, trace=[*trace], names=names, settings=settings, arrays=arrays, options=options)
    needs = {CLAIMS[name] for name in (*names, *options) if name in CLAIMS}
    if not isinstance(options.get("learning_rate"), tuple) and "learning_rate" not in names:
        needs.discard("schedule")  # every cell has one learning rate
    if dtype in ("float16", "bfloat16"):
        needs.add(dtype)
    return named(row.name, 3, row.catches, run, needs)


def _take_steps(
    subject: Subject, trace: Any, names: Sequence[str], settings: dict[str, Any], arrays: dict[str, Any], options: dict[str, Any]
) -> None:
    reports = "global_norm" in names and "clip" in subject.info.capabilities  # some cells report a norm only if they clip
    options = {"learning_rate": 0.5} | ({"max_norm": 64.0} if reports else {}) | options
    if "finite" in names and "counters" in subject.info.capabilities:
        names = [*names, "applied"]
    cell = Cell(subject, simple_rule(subject, **settings), new_parameters(**arrays), **options)
    if len(trace) > EXACT_STEPS:
        cell.tolerance = CLIPPED
    for number, letter in enumerate(trace):
        data = data_of(arrays["shapes"], letter, number, cell.scale, arrays["dtype"])
        cell.expect(cell.train(data), names, f"step {number} (counted from 0)")


class CellSettings(NamedTuple):
    """Drawn training cell, with the letters of a trace and the outputs that suit it."""

    rule: dict[str, Any]  # constants
    options: dict[str, Any]  # of `create_cell`
    letters: str
    names: Sequence[str]  # outputs to compare
    parameters: dict[str, Any]  # options of `new_parameters`


def draw_cells(pick: Pick, info: ImplementationInfo, top: bool, full: str = "") -> list[CellSettings]:
    """
    Draw a cell, and cells that differ from it in one constant or option.

    With a dtype *full*, the cell has this dtype and every option that the implementation claims.
    """
    claims = info.capabilities
    if "bfloat16" in full and not {"bfloat16", "clip"} <= {*claims}:  # without clipping, parameters must not be rounded
        raise Unsupported("does not claim bfloat16 and clip")
    options = _draw_options(pick, claims, bool(full))
    clips = "max_norm" in options
    only_float32 = top or "float16" not in claims or ("momentum" in options and not clips)
    dtype = full or ("float32" if only_float32 else pick(("float32", *DTYPES)))
    dtype = dtype.removeprefix("float64,") if info.arrays == "jax" else dtype
    narrow = "float16" in dtype
    tiny = narrow and one_in(3, pick)
    if clips and not narrow and options["learning_rate"] is RATES:
        options["learning_rate"] = FINE
    factor = pick((1.0, 1.0 if narrow or "momentum" in options else 2.0**80))
    starts = [2.0**exponent for exponent in _start_exponents(narrow, tiny, clips)]
    starts[0] *= 1 if narrow or "division" not in claims else 1 + 2.0**-12  # float16 cannot represent it
    rule, *other_rules = draw_rules(pick, info, starts, top, narrow)
    if isinstance(info.preset, LossScaleRule) and one_in(6, pick):
        rule |= {"growth_factor": 1.0, "backoff_factor": 1.0}
    unspecified = {"loss"} if factor > 1 else set[str]()  # it can be infinite
    if full == "bfloat16" or ("clip" in claims and not clips):
        unspecified.add("global_norm")  # some cells report it only if they clip, and that of bfloat16 gradients may be bfloat16
    reported = [name for name, claim in OUTPUTS.items() if claim in claims and name not in unspecified]
    names = ["parameters", "finite", "scale", "next_scale", *reported]
    letters = "000-" if top else _letters(narrow, tiny, clips, factor > 1)
    cell = CellSettings(rule, options, letters, names, {"dtype": dtype, "other": math.nan if factor > 1 else 7.0})
    cells = [cell, *(cell._replace(rule=other) for other in other_rules)]
    for name, value in OTHERS:  # a list of learning rates replaces only another list
        if name in options and type(value) in (float, type(options[name])):
            cells.append(cell._replace(options=options | {name: value}))
    return [cell._replace(parameters=cell.parameters | {"factor": factor * pick((1.0, 0.5))}) for cell in cells]


def _draw_options(pick: Pick, claims: Iterable[str], every: bool) -> dict[str, Any]:
    """Draw options of a cell that are claimed: all of them if *every* is True."""
    options: dict[str, Any] = {"learning_rate": pick((1.0, 0.5, 0.25))}
    momentum = pick((0.5, 0.25))
    if "schedule" in claims and pick((True, every)):
        options["learning_rate"] = RATES
    if "momentum" in claims and pick((True, every)):
        options["momentum"] = momentum
    if "clip" in claims and pick((True, every)):
        options["max_norm"] = pick(LIMITS)
    return options


def _start_exponents(narrow: bool, tiny: bool, clips: bool) -> tuple[int, ...]:
    """Return the exponents of the initial scales to draw from. At large scales, 16-bit gradients overflow if not *tiny*."""
    if tiny:
        return (17,)
    if narrow:
        return (4, 0) if clips else (4, 0, 8, 11)
    return (10, 4, 15, 0, 40)


def _letters(narrow: bool, tiny: bool, clips: bool, large: bool) -> str:
    """Return the letters to draw a trace from, for 16-bit (*narrow*), *tiny* or clipped gradients, or for *large* parameters."""
    if tiny:
        return "uuuu-"
    letters = "++-+-!0="
    if clips:
        letters += "wl"
    if not narrow:
        letters += "t"
    elif clips:
        letters += "sssllx-=u"
    return letters + ("lll" if large else "")


def draw_training(
    pick: Pick, info: ImplementationInfo, top: bool = False, every: str = "", end: str = "+", missing: str = ""
) -> DrawnCase:
    """
    Draw steps of one or two cells, near the largest scale if *top* is True.

    With *every*, draw steps of as many cells of this dtype as `LIMIT` allows; *end* is the letter of the last step of each cell
    that clips. *missing* are letters of further steps, in which parameters have no gradient.
    """
    if missing and "none" not in info.capabilities:
        raise Unsupported("does not claim none")
    cells, others = draw_cells(pick, info, top, every), draw_cells(pick, info, top)
    layout, start = pick((*(SHAPES[name] for name in "abcff"), ((3,),))), pick(range(35))
    if every:
        cells = cells[: 2 if every == "bfloat16" else LIMIT.get(info.arrays, 3)]
        layout = ((), ())
        turns = [(index, letter) for letter in "+-+---++-+" for index in range(len(cells))]
        turns += [(index, end if "max_norm" in cell.options else "+") for index, cell in enumerate(cells)]
    else:
        cells = [cells[0], *pick(([], [others[0]], [pick(cells)]))]
        indices = [pick(range(len(cells))) for _ in range(STEPS)]
        drawn = [[(index, pick(cells[index].letters))] * pick((1, 1, 2)) for index in indices]
        turns = list(chain(*drawn))[: 4 if missing else pick((STEPS, 5, 8))]
        turns += [(turns[-1][0], letter) for letter in missing]  # with at most ten steps that can use a rate of `RATES`
    return DrawnCase(partial(_train, layout=layout, cells=cells, turns=turns, start=start))


def _train(
    subject: Subject, layout: Sequence[Shape], cells: Sequence[CellSettings], turns: Sequence[tuple[int, str]], start: int
) -> None:
    """Train the cells in turn. They are created from shared arrays; if *start* is even, all of them before the first step."""
    shared, results = dict[Any, Any](), list[Step]()
    rules = [simple_rule(subject, **cell.rule) for cell in cells]

    @cache
    def created(index: int) -> Cell:
        return Cell(subject, rules[index], new_parameters(layout, **cells[index].parameters), shared, **cells[index].options)

    if start % 2 == 0:
        for index in range(len(cells)):
            created(index)
    for number, (index, letter) in enumerate(turns):
        cell, dtype = created(index), cells[index].parameters["dtype"]
        needs_finite(cell.scale)
        if "float16" in dtype:
            _needs_exact_float16(rules[index], letter, cell.scale)
        step = cell.train(data_of(layout, letter, start + number, cell.scale, dtype))
        fits = step.expected.scale < LEAST_INFINITE or "float16" not in dtype
        if step.outputs and not fits and step.expected.finite and not subject.flag(step.outputs.get("finite"), "finite"):
            raise Unsupported("the seed may be rounded to float16, in which it is infinite: STEP-seed")
        results.append(step)
        cell.expect(step, cells[index].names, f"step {number} (counted from 0), {letter} of cell {index}")
    first = turns[0][0]
    created(first).expect(results[0], cells[first].names, "step 0 (counted from 0), compared after the last step")


def _needs_exact_float16(rule: LossScaleRule, letter: str, scale: float) -> None:
    """Raise Unsupported if a step would round scaled float16 gradients, or make finite ones overflow."""
    raises = rule.raise_at_min_scale or rule.raise_at_or_below is not None
    if (raises or letter not in "u-=") and (scale > 2.0**12 or not is_power_of_two(scale)):
        raise Unsupported(f"float16 gradients overflow or are rounded at the scale {scale!r}")


EACH = [(partial(draw_training, every="float64,float32"), ["cells 10"]), (partial(draw_training, every="bfloat16"), ["cells 21"])]
NARROW_CELLS = (draw_training, ["cells 45", "cells 50"])  # cells with float16 parameters, some beside float32 ones
MISSING = (partial(draw_training, missing="-mnN++-N-+"), [f"missing {number}" for number in (4, 5, 13, 17, 25, 30)])
CASES = (drawn("STEP-every-sequence/cells-train-with-every-option", 3, draw_training, others=[*EACH, NARROW_CELLS, MISSING]),)
