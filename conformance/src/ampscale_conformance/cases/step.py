"""Chapter 50, step: training of a linear network, and the outputs of each step. "+" is a finite step, "-" an overflow."""

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

PARAMETERS = [[4.0, 0.0], [3.0]]  # the zero never changes, and its gradient causes the overflows
DATA = {
    "+": [[1.0, 0.0], [-2.0]],
    "-": [[1.0, math.inf], [-2.0]],
    "large": [[1.0, 2.0**127], [-2.0]],  # a small loss whose scaled gradients overflow
}
NEAR = 1e-5  # relative tolerance, for different formulas and roundings of published implementations


def steps(name: str, trace: str, outputs: str, catches: str, *needs: str, dtype: str = "float32", **options: Any) -> Case:
    """Return a case that takes steps, one word or sign each, and compares these outputs after each."""
    data = trace.split() if " " in trace else list(trace)
    run = partial(_take, data=data, names=outputs.split(), dtype=dtype, options=options)
    return named(name, 3, catches, run, needs)


class Cell:
    """Training cell under test, next to the oracle's."""

    def __init__(self, subject: Subject, rule: Any, parameters: Sequence[Bits], **options: Any) -> None:
        options = {"learning_rate": 1.0, **options}
        self.subject = subject
        self.training = Training(rule, parameters, **options)
        self._cell = subject.call("create_cell", rule, subject.to_arrays(list(parameters)), **options)

    def train(self, data: Sequence[Bits]) -> tuple[Any, Outputs]:
        """Return the outputs of one step, and the expected ones."""
        return self.subject.call("train_step", self._cell, self.subject.to_arrays(list(data))), self.training.step(data)


def _take(subject: Subject, data: Iterable[str], names: Sequence[str], dtype: str, options: dict[str, Any]) -> None:
    window = {"growth_interval": 2} if "next_scale" in names else {}
    cell = Cell(subject, simple_rule(subject, **window), arrays(PARAMETERS, dtype), **options)
    for number, key in enumerate(data):
        outputs, expected = cell.train(arrays(DATA[key], dtype))
        for name in names:
            expect_output(subject, outputs, expected, name, f"step {number} (counted from 0)")


def arrays(rows: Iterable[Sequence[float]], dtype: str = "float32") -> list[Bits]:
    """Return one array per row."""
    return [array(dtype, list(row)) for row in rows]


def output(outputs: Any, name: str) -> Any:
    """Return one output of a step; None if it is missing."""
    return outputs.get(name) if isinstance(outputs, Mapping) else None


def expect_output(subject: Subject, outputs: Any, expected_outputs: Outputs, name: str, when: str) -> None:
    """Expect one output of a step; numbers may differ by `NEAR`."""
    got, expected, label = output(outputs, name), getattr(expected_outputs, name), f"{when}: {name}"
    if name == "parameters":
        needs_power_of_two(expected_outputs.scale)
        subject.expect_same(subject.to_bits(got, label), expected, label)
    elif name == "finite":
        flag = subject.flag(got, label)
        subject.expect(flag == expected, f"{label}: expected {expected}, got {flag}")
    else:
        number = subject.number(got, label)
        subject.expect(math.isclose(number, expected, rel_tol=NEAR), f"{label}: expected {expected!r}, got {number!r}")


@case("STEP-seed", 3, "unused scale: the scale backs off, but the backward pass starts from another number")
def the_scale_backs_off_until_the_gradients_fit(subject: Subject) -> None:
    """The data times the initial scale overflows by a factor of 2."""
    rule = simple_rule(subject)
    if not 4.0 <= rule.init_scale <= 2.0**64:
        raise Unsupported(f"its initial scale is {rule.init_scale!r}, and this case requires one from 4 to 2**64")
    top = 2.0**126 / rule.init_scale * 4
    cell = Cell(subject, rule, arrays([[1.0]]), learning_rate=1 / top)
    for number in range(2):
        outputs, expected = cell.train(arrays([[top]]))
        expect_output(subject, outputs, expected, "parameters", f"step {number} (counted from 0)")


@case("STEP-report", 3, "shared output: later steps change the outputs of an earlier step")
def outputs_are_snapshots(subject: Subject) -> None:
    """The outputs of the first step are compared after the fifth, when both scales have changed."""
    cell = Cell(subject, simple_rule(subject, growth_interval=2), arrays(PARAMETERS))
    outputs, expected = cell.train(arrays(DATA["+"]))
    for sign in "+++-":
        cell.train(arrays(DATA[sign]))
    for name in ("parameters", "scale", "next_scale", "finite"):
        expect_output(subject, outputs, expected, name, "step 0 (counted from 0), compared after step 4")


@case("STEP-order", 3, "early update: gradients are divided by the scale after the growth in this step")
def each_step_uses_one_scale(subject: Subject) -> None:
    """The scale grows in every step."""
    cell = Cell(subject, simple_rule(subject, growth_interval=1), arrays(PARAMETERS))
    for number in range(3):
        outputs, expected = cell.train(arrays(DATA["+"]))
        expect_output(subject, outputs, expected, "parameters", f"step {number} (counted from 0)")


CASES = (
    steps(
        "STEP-apply/applies-the-unscaled-gradient",
        "+",
        "parameters",
        "wrong update: the gradient is still scaled, or not multiplied by the learning rate",
        learning_rate=0.5,
    ),
    steps(
        "STEP-apply/updates-16-bit-parameters",
        "+",
        "parameters",
        "missing dtype: the optimizer does not accept float16 gradients, or the scale overflows float16",
        dtype="float16",  # represents these small numbers exactly
    ),
    the_scale_backs_off_until_the_gradients_fit,
    each_step_uses_one_scale,
    steps("STEP-skip/an-overflow-changes-nothing", "-+", "parameters", "applied overflow: parameters become infinite or NaN"),
    steps(
        "STEP-skip/an-overflow-leaves-the-momentum",
        "+-+",
        "parameters",
        "changing momentum: a skipped step decays or corrupts the momentum, or applies it",
        "momentum",
        momentum=0.5,
    ),
    steps(
        "STEP-skip/an-overflow-leaves-the-schedule",
        "+-+",
        "parameters",
        "advancing schedule: skipped steps decrease the learning rate",
        "schedule",
        learning_rate=[0.5, 0.25, 0.125],
    ),
    steps("STEP-report/reports-the-finite-flag", "+-", "finite", "wrong flag: the flag is inverted or constant"),
    steps("STEP-report/reports-both-scales", "++-+", "scale next_scale", "single scale: both are the same, or exchanged"),
    outputs_are_snapshots,
    steps(
        "STEP-scale-updated-last/the-scale-is-updated-once-a-step",
        "+-++--",
        "next_scale",
        "wrong update: the scale is updated only in applied steps, or twice",
    ),
    steps(
        "STEP-loss-unscaled/the-loss-is-unscaled",
        "+ large",
        "loss",
        "scaled loss: the loss is reported scaled, computed after the update, or missing in a skipped step",
        "loss",
    ),
    steps(
        "STEP-learning-rate/reports-the-learning-rate-of-the-step",
        "+-+",
        "learning_rate",
        "next rate: the learning rate of the next step is reported",
        "schedule",
        learning_rate=[0.5, 0.25, 0.125],
    ),
    steps(
        "STEP-counters/counts-attempted-and-applied-steps",
        "+-+",
        "attempted applied",
        "single count: skipped steps count as applied, or not at all",
        "counters",
    ),
)
