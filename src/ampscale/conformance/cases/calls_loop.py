"""A hand-written loop over an implementation, and beside it what has to come of it, in exact numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..adapter import Unsupported
from ..bits import Bits
from ..oracle import tensors
from ..oracle.floats import rounded
from ..oracle.machine import Machine
from ..oracle.tensors import array, from_numbers, numbers
from ..subject import Subject

SIMPLE = {"growth_factor": 2.0, "backoff_factor": 0.5, "hysteresis": 1}
PARAMETERS = {"a": [[8.0, -4.0], [3.0]], "b": [[-2.0, 6.0], [1.0]]}
GRADIENTS: Mapping[str, Sequence[list[float] | None]] = {
    "": [[1.0, 0.5], [-2.0]],
    "inf": [[1.0, math.inf], [-2.0]],
    "some": [[1.0, 0.5], None],
    "none": [None, None],
}
HUGE = [[2.0**127, 1.0], [1.0]]  # as they are laid down


def simple_rule(subject: Subject, **settings: Any) -> Any:
    """The claimed rule with these settings; where it can be set so, it doubles and halves, and halves at each overflow."""
    return subject.rule(**{name: value for name, value in SIMPLE.items() if name in subject.family.parameters}, **settings)


def needs_power_of_two(scale: float) -> None:
    """Unsupported at other scales, where right implementations divide to numbers that differ in the last bit."""
    if math.frexp(scale)[0] != 0.5:
        raise Unsupported(f"its scale is {scale!r} here, and the expected numbers are exact at powers of two")


@dataclass
class Side:
    """One optimizer: what its maker knows it by, and what it has to hold."""

    optimizer: Any
    parameters: list[Bits]
    gradients: list[Bits | None] = field(default_factory=list)
    stage: str = ""  # "unscaled", and then "stepped"
    finite: bool = True


class Loop:
    """
    The loop.

    Args:
        subject: The implementation.
        rule: Its rule.
        names: Of its optimizers: "a", or "ab".
        answers: Whether `step` tells if it stepped.
    """

    def __init__(self, subject: Subject, rule: Any, names: Iterable[str], answers: bool) -> None:
        self.subject = subject
        self.machine = Machine(rule)
        self.answers = answers
        self.also: float | None = None  # another scale that is right
        self.handle = subject.create(rule)
        self.sides = {name: self.side(PARAMETERS[name]) for name in names}

    def side(self, values: Sequence[list[float]]) -> Side:
        """An optimizer over these parameters."""
        parameters = [array("float32", row) for row in values]
        return Side(self.subject.call("add_optimizer", self.handle, self.subject.made(parameters)), parameters)

    def say(self, word: str, when: str) -> None:
        """One word, and what holds after it."""
        spoken, _, name = word.partition("/")
        said, _, kind = spoken.partition(":")
        side = self.sides[name or "a"]
        if said in ("lay", "edit"):
            self.lay(side, self.laid(kind) if said == "lay" else [_halved(gradient) for gradient in side.gradients])
            return
        if said.endswith("!"):
            self.be_refused(when, *(["update_scale"] if said == "update!" else [said[:-1], side.optimizer]))
        else:
            {"unscale_": self.unscale, "step": self.take_step, "update": self.update_scale}[said](side, when)
        if said.startswith("step"):
            self.expect_parameters(side, when)
        self.expect_scale(when)
        if said.startswith("unscale_") and side.stage == "unscaled" and side.finite:
            self.expect_gradients(side, when)

    def lay(self, side: Side, gradients: list[Bits | None]) -> None:
        """As a backward pass does, or whoever clips."""
        side.gradients = gradients
        self.subject.call("set_gradients", self.handle, side.optimizer, self.subject.made(gradients))

    def laid(self, kind: str) -> list[Bits | None]:
        """Gradients, scaled."""
        if kind == "huge":
            return [array("float32", values) for values in HUGE]
        scale = self.machine.point.scale
        needs_power_of_two(scale)
        return [None if row is None else tensors.scale(array("float32", row), scale) for row in GRADIENTS[kind]]

    def unscale(self, side: Side, _: str) -> None:
        """Gradients are divided where they lie."""
        self.subject.call("unscale_", self.handle, side.optimizer)
        self.unscaled(side)

    def unscaled(self, side: Side) -> None:
        """What has to lie there then, and the flag."""
        scaled, scale = side.gradients, self.machine.point.scale
        side.gradients = [gradient and tensors.unscale(gradient, scale) for gradient in scaled]
        side.stage, side.finite = "unscaled", tensors.all_finite(scaled) and tensors.all_finite(side.gradients)

    def take_step(self, side: Side, when: str) -> None:
        """The parameters move, or stay."""
        answer = self.subject.call("step", self.handle, side.optimizer)
        if side.stage != "unscaled":
            self.unscaled(side)
        side.stage = "stepped"
        if side.finite:
            pairs = zip(side.parameters, side.gradients, strict=True)
            side.parameters = [_minus(parameter, gradient) if gradient else parameter for parameter, gradient in pairs]
        if self.answers:
            applied = self.subject.flag(answer, "step")
            self.subject.expect(applied == side.finite, f"{when}: wanted it to return {side.finite}, got {applied}")

    def update_scale(self, *_: Any) -> None:
        """The scale moves, by all that was unscaled; where that was nothing, it may stay: CALLS-no-gradients-alone."""
        self.subject.call("update_scale", self.handle)
        counted = [side for side in self.sides.values() if side.stage]
        self.also = None if any(gradient for side in counted for gradient in side.gradients) else self.machine.point.scale
        self.machine.step(all(side.finite for side in counted))
        for side in self.sides.values():
            side.stage = ""

    def be_refused(self, when: str, method: str, *optimizers: Any) -> None:
        """It raises."""
        refused = self.subject.refuses(method, self.handle, *optimizers)
        self.subject.expect(refused, f"{when.removesuffix('!')}: wanted {method} to raise here, and it did not")

    def expect_scale(self, when: str) -> None:
        """The scale that is in force."""
        got, wanted = self.subject.read_scale(self.handle), self.machine.point.scale
        holds = rounded(got, self.machine.rule.dtype) in (wanted, self.also)
        self.subject.expect(holds, f"{when}: wanted a scale of {wanted!r}, got {got!r}")

    def expect_gradients(self, side: Side, when: str) -> None:
        """What lies on the parameters."""
        got = self.subject.read(self.subject.call("get_gradients", self.handle, side.optimizer), "get_gradients")
        self.subject.expect_same(got, side.gradients, f"{when}: gradients")

    def expect_parameters(self, side: Side, when: str) -> None:
        """The parameters of one optimizer."""
        got = self.subject.read(self.subject.call("get_parameters", self.handle, side.optimizer), "get_parameters")
        self.subject.expect_same(got, side.parameters, f"{when}: parameters")


def _halved(gradient: Bits | None) -> Bits | None:
    return gradient and from_numbers(gradient.dtype, gradient.shape, [value / 2 for value in numbers(gradient)])


def _minus(parameter: Bits, gradient: Bits) -> Bits:
    pairs = zip(numbers(parameter), numbers(gradient), strict=True)
    return from_numbers(parameter.dtype, parameter.shape, [value - step for value, step in pairs])
