"""A hand-written loop over an implementation, and beside it what has to come of it, in exact numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import Bits
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle import calls, tensors
from ..oracle.tensors import array, from_numbers, numbers

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


class Loop:
    """The loop, with an optimizer for each of *names*, "a" or "ab"; its `step` *answers* whether it stepped, or does not."""

    def __init__(self, subject: Subject, rule: Any, names: Iterable[str], answers: bool) -> None:
        parameters = {name: [array("float32", row) for row in PARAMETERS[name]] for name in names}
        self.subject, self.rule, self.answers = subject, rule, answers
        self.wanted = calls.Loop(rule, parameters)
        self.also: float | None = None  # another scale that is right
        self.handle = subject.create(rule)
        self.optimizers = {
            name: subject.call("add_optimizer", self.handle, subject.made(leaves)) for name, leaves in parameters.items()
        }

    def say(self, word: str, when: str) -> None:
        """One word, and what holds after it."""
        spoken, _, name = word.partition("/")
        said, _, kind = spoken.partition(":")
        name = name or "a"
        if said in ("lay", "edit"):
            self.lay(
                name, self.laid(kind) if said == "lay" else [_halved(leaf) for leaf in self.wanted.optimizers[name].gradients]
            )
            return
        if said.endswith("!"):
            self.be_refused(when, *(["update_scale"] if said == "update!" else [said[:-1], self.optimizers[name]]))
        else:
            {"unscale_": self.unscale, "step": self.take_step, "update": self.update_scale}[said](name, when)
        if said.startswith("step"):
            self.expect("parameters", name, when)
        self.expect_scale(when)
        if said == "unscale_" and self.wanted.optimizers[name].finite:
            self.expect("gradients", name, when)

    def lay(self, name: str, gradients: list[Bits | None]) -> None:
        """As a backward pass does, or whoever clips."""
        self.wanted.set_gradients(name, gradients)
        self.subject.call("set_gradients", self.handle, self.optimizers[name], self.subject.made(gradients))

    def laid(self, kind: str) -> list[Bits | None]:
        """Gradients, scaled."""
        if kind == "huge":
            return [array("float32", values) for values in HUGE]
        needs_power_of_two(self.wanted.scale)
        return [None if row is None else tensors.scale(array("float32", row), self.wanted.scale) for row in GRADIENTS[kind]]

    def unscale(self, name: str, _: str) -> None:
        """Gradients are divided where they lie."""
        self.subject.call("unscale_", self.handle, self.optimizers[name])
        self.wanted.unscale_(name)

    def take_step(self, name: str, when: str) -> None:
        """The parameters move, or stay."""
        answer, stepped = self.subject.call("step", self.handle, self.optimizers[name]), self.wanted.step(name)
        if self.answers:
            applied = self.subject.flag(answer, "step")
            self.subject.expect(applied == stepped, f"{when}: wanted it to return {stepped}, got {applied}")

    def update_scale(self, *_: Any) -> None:
        """The scale moves by all that was unscaled; nothing may count as finite: CALLS-no-gradients-alone."""
        self.subject.call("update_scale", self.handle)
        self.also = self.wanted.counted().point.scale
        self.wanted.update()

    def be_refused(self, when: str, method: str, *optimizers: Any) -> None:
        """It raises."""
        refused = self.subject.refuses(method, self.handle, *optimizers)
        self.subject.expect(refused, f"{when.removesuffix('!')}: wanted {method} to raise here, and it did not")

    def expect_scale(self, when: str) -> None:
        """The scale that is in force."""
        got, wanted = self.subject.read_scale(self.handle), self.wanted.scale
        holds = rounded(got, self.rule.dtype) in (wanted, self.also)
        self.subject.expect(holds, f"{when}: wanted a scale of {wanted!r}, got {got!r}")

    def expect(self, what: str, name: str, when: str) -> None:
        """The parameters of one optimizer, or the gradients that lie on them."""
        got = self.subject.read(self.subject.call(f"get_{what}", self.handle, self.optimizers[name]), f"get_{what}")
        self.subject.expect_same(got, getattr(self.wanted.optimizers[name], what), f"{when}: {what}")


def _halved(gradient: Bits | None) -> Bits | None:
    return gradient and from_numbers(gradient.dtype, gradient.shape, [value / 2 for value in numbers(gradient)])
