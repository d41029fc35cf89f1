"""Chapter 50, the step: a linear network is trained, one "+" (finite) or "-" (overflow) a step, which tells what came of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import Bits
from ..model.case import Case, case, named
from ..model.subject import Subject
from ..oracle.step import Outputs, Training
from ..oracle.tensors import array
from .calls_loop import needs_power_of_two, simple_rule

PARAMETERS = [[4.0, 0.0], [3.0]]  # the zero is where overflows come from: it never moves
DATA = {
    "+": [[1.0, 0.0], [-2.0]],
    "-": [[1.0, math.inf], [-2.0]],
    "large": [[1.0, 2.0**127], [-2.0]],  # the loss is small, and its scaled gradients overflow
}
NEAR = 1e-5  # further than published formulas and roundings lie apart


def steps(name: str, walk: str, looks: str, catches: str, *needs: str, dtype: str = "float32", **options: Any) -> Case:
    """A case that takes steps, one word or sign each, and *looks* at these outputs after each."""
    run = partial(_take, walk=walk.split() if " " in walk else list(walk), looks=looks.split(), dtype=dtype, options=options)
    return named(name, 3, catches, run, needs)


class Cell:
    """A cell under test, and beside it what has to come of each of its steps."""

    def __init__(self, subject: Subject, rule: Any, parameters: Sequence[Bits], **options: Any) -> None:
        options = {"learning_rate": 1.0, **options}
        self.subject = subject
        self.training = Training(rule, parameters, **options)
        self._cell = subject.call("create_cell", rule, subject.made(list(parameters)), **options)

    def train(self, data: Sequence[Bits]) -> tuple[Any, Outputs]:
        """What one step tells, and what it has to tell."""
        return self.subject.call("train_step", self._cell, self.subject.made(list(data))), self.training.step(data)


def _take(subject: Subject, walk: Iterable[str], looks: Sequence[str], dtype: str, options: dict[str, Any]) -> None:
    window = {"growth_interval": 2} if "next_scale" in looks else {}
    cell = Cell(subject, simple_rule(subject, **window), arrays(PARAMETERS, dtype), **options)
    for number, word in enumerate(walk, start=1):
        outputs, wanted = cell.train(arrays(DATA[word], dtype))
        for name in looks:
            expect_output(subject, outputs, wanted, name, f"step {number}")


def arrays(rows: Iterable[Sequence[float]], dtype: str = "float32") -> list[Bits]:
    """One array a row."""
    return [array(dtype, list(row)) for row in rows]


def told(outputs: Any, name: str) -> Any:
    """One output of a step; None where it is not there."""
    return outputs.get(name) if isinstance(outputs, Mapping) else None


def expect_output(subject: Subject, outputs: Any, wanted: Outputs, name: str, when: str) -> None:
    """One output of a step is as it has to be, a number within `NEAR`."""
    got, hoped, what = told(outputs, name), getattr(wanted, name), f"{when}: {name}"
    if name == "parameters":
        needs_power_of_two(wanted.scale)
        subject.expect_same(subject.read(got, what), hoped, what)
    elif name == "finite":
        flag = subject.flag(got, what)
        subject.expect(flag == hoped, f"{what}: wanted {hoped}, got {flag}")
    else:
        number = subject.number(got, what)
        subject.expect(math.isclose(number, hoped, rel_tol=NEAR), f"{what}: wanted {hoped!r}, got {number!r}")


@case("STEP-seed", 3, "idle scale: it backs off, and the backward pass starts from another number")
def the_scale_backs_off_until_the_gradients_fit(subject: Subject) -> None:
    """The data times the first scale is infinite by one power of two."""
    rule = simple_rule(subject)
    if not 4.0 <= rule.init_scale <= 2.0**64:
        raise Unsupported(f"its first scale is {rule.init_scale!r}, and these numbers are made for scales from 4 to 2**64")
    top = 2.0**126 / rule.init_scale * 4
    cell = Cell(subject, rule, arrays([[1.0]]), learning_rate=1 / top)
    for number in (1, 2):
        outputs, wanted = cell.train(arrays([[top]]))
        expect_output(subject, outputs, wanted, "parameters", f"step {number}")


@case("STEP-report", 3, "live output: what a step has told changes with the steps after it")
def outputs_are_snapshots(subject: Subject) -> None:
    """Those of the first step are looked at again after the fifth, when both scales are others."""
    cell = Cell(subject, simple_rule(subject, growth_interval=2), arrays(PARAMETERS))
    outputs, wanted = cell.train(arrays(DATA["+"]))
    for sign in "+++-":
        cell.train(arrays(DATA[sign]))
    for name in ("parameters", "scale", "next_scale", "finite"):
        expect_output(subject, outputs, wanted, name, "step 1, looked at after step 5")


@case("STEP-order", 3, "early scale: a step in which the scale moves divides by what it moves to")
def each_step_uses_one_scale(subject: Subject) -> None:
    """It grows in every step."""
    cell = Cell(subject, simple_rule(subject, growth_interval=1), arrays(PARAMETERS))
    for number in (1, 2, 3):
        outputs, wanted = cell.train(arrays(DATA["+"]))
        expect_output(subject, outputs, wanted, "parameters", f"step {number}")


CASES = (
    steps(
        "STEP-apply/applies-the-unscaled-gradient",
        "+",
        "parameters",
        "wrong update: it is scaled, or not times the learning rate",
        learning_rate=0.5,
    ),
    steps(
        "STEP-apply/moves-16-bit-parameters",
        "+",
        "parameters",
        "no 16 bits: an optimizer that has no float16 gradients, or a scale that they cannot hold",
        dtype="float16",  # which holds these small numbers exactly
    ),
    the_scale_backs_off_until_the_gradients_fit,
    each_step_uses_one_scale,
    steps("STEP-skip/an-overflow-moves-nothing", "-+", "parameters", "applied overflow: parameters are infinite or NaN"),
    steps(
        "STEP-skip/an-overflow-leaves-the-momentum",
        "+-+",
        "parameters",
        "moving momentum: it decays or is spoilt in a skipped step, or moves the parameters on",
        "momentum",
        momentum=0.5,
    ),
    steps(
        "STEP-skip/an-overflow-leaves-the-schedule",
        "+-+",
        "parameters",
        "running schedule: the learning rate falls in steps that are skipped",
        "schedule",
        learning_rate=[0.5, 0.25, 0.125],
    ),
    steps(
        "STEP-report/tells-whether-the-step-was-finite", "+-", "finite", "wrong flag: it says the opposite, or always the same"
    ),
    steps(
        "STEP-report/tells-both-scales",
        "++-+",
        "scale next_scale",
        "one scale: that of the next step is told for the one used, or the other way round",
    ),
    outputs_are_snapshots,
    steps(
        "STEP-scale-moves-last/the-scale-moves-once-a-step",
        "+-++--",
        "next_scale",
        "wrong update: the scale moves in applied steps alone, or twice",
    ),
    steps(
        "STEP-loss-unscaled/the-loss-is-unscaled",
        "+ large",
        "loss",
        "scaled loss: it is told as it was differentiated, or after the update, or not at all where the step is skipped",
        "loss",
    ),
    steps(
        "STEP-learning-rate/tells-the-learning-rate-of-the-step",
        "+-+",
        "learning_rate",
        "next rate: what is told is the rate of the step after",
        "schedule",
        learning_rate=[0.5, 0.25, 0.125],
    ),
    steps(
        "STEP-counters/counts-attempted-and-applied-steps",
        "+-+",
        "attempted applied",
        "one count: skipped steps are counted as applied, or not at all",
        "counters",
    ),
)
