"""Hand-written training loop over an implementation, next to the oracle's loop with the expected values."""

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
HUGE = [[2.0**127, 1.0], [1.0]]  # already scaled


def simple_rule(subject: Subject, **settings: Any) -> Any:
    """Return the supported rule with these settings and, where they can be set, factors of 2 and 0.5 and a hysteresis of 1."""
    return subject.rule(**{name: value for name, value in SIMPLE.items() if name in subject.supported.parameters}, **settings)


def needs_power_of_two(scale: float) -> None:
    """Raise Unsupported for other scales, at which conforming implementations can differ in the last bit."""
    if math.frexp(scale)[0] != 0.5:
        raise Unsupported(f"its scale is {scale!r}, and the expected values are exact only for powers of two")


class Loop:
    """
    Training loop with an optimizer for each of *names*, "a" or "ab".

    *returns_applied* is True if the implementation's `step` returns whether the optimizer stepped.
    """

    def __init__(self, subject: Subject, rule: Any, names: Iterable[str], returns_applied: bool) -> None:
        parameters = {name: [array("float32", row) for row in PARAMETERS[name]] for name in names}
        self.subject, self.rule, self.returns_applied = subject, rule, returns_applied
        self.oracle = calls.Loop(rule, parameters)
        self.alternative: float | None = None  # another permitted scale
        self.handle = subject.create(rule)
        self.optimizers = {
            name: subject.call("add_optimizer", self.handle, subject.to_arrays(leaves)) for name, leaves in parameters.items()
        }

    def execute(self, command: str, when: str) -> None:
        """Execute one command of a script, and check the values that it affects."""
        action, _, name = command.partition("/")
        action, _, gradients = action.partition(":")
        name = name or "a"
        if action == "set":
            self.set_gradients(name, self.scaled_gradients(gradients))
            return
        if action == "edit":
            self.set_gradients(name, [_halved(leaf) for leaf in self.oracle.optimizers[name].gradients])
            return
        if action.endswith("!"):
            self.expect_error(when, *(["update_scale"] if action == "update!" else [action[:-1], self.optimizers[name]]))
        else:
            {"unscale_": self.unscale, "step": self.take_step, "update": self.update_scale}[action](name, when)
        if action.startswith("step"):
            self.expect("parameters", name, when)
        self.expect_scale(when)
        if action == "unscale_" and self.oracle.optimizers[name].finite:
            self.expect("gradients", name, when)

    def set_gradients(self, name: str, gradients: list[Bits | None]) -> None:
        """Set the gradients of both loops."""
        self.oracle.set_gradients(name, gradients)
        self.subject.call("set_gradients", self.handle, self.optimizers[name], self.subject.to_arrays(gradients))

    def scaled_gradients(self, kind: str) -> list[Bits | None]:
        """Return the scaled gradients of `set:kind`."""
        if kind == "huge":
            return [array("float32", values) for values in HUGE]
        needs_power_of_two(self.oracle.scale)
        return [None if row is None else tensors.scale(array("float32", row), self.oracle.scale) for row in GRADIENTS[kind]]

    def unscale(self, name: str, _: str) -> None:
        """Unscale the gradients in place."""
        self.subject.call("unscale_", self.handle, self.optimizers[name])
        self.oracle.unscale_(name)

    def take_step(self, name: str, when: str) -> None:
        """Step the optimizer or skip the step."""
        returned, stepped = self.subject.call("step", self.handle, self.optimizers[name]), self.oracle.step(name)
        if self.returns_applied:
            applied = self.subject.flag(returned, "step")
            self.subject.expect(applied == stepped, f"{when}: expected step to return {stepped}, got {applied}")

    def update_scale(self, *_: Any) -> None:
        """Update the scale. Without any gradient the step may count as finite, see CALLS-no-gradients-alone."""
        self.subject.call("update_scale", self.handle)
        self.alternative = self.oracle.counted().point.scale
        self.oracle.update()

    def expect_error(self, when: str, method: str, *optimizers: Any) -> None:
        """Expect the call to raise an error."""
        raised = self.subject.raises(method, self.handle, *optimizers)
        self.subject.expect(raised, f"{when.removesuffix('!')}: expected {method} to raise an error, got none")

    def expect_scale(self, when: str) -> None:
        """Expect the current scale."""
        got, expected = self.subject.read_scale(self.handle), self.oracle.scale
        permitted = rounded(got, self.rule.dtype) in (expected, self.alternative)
        self.subject.expect(permitted, f"{when}: expected scale {expected!r}, got {got!r}")

    def expect(self, attribute: str, name: str, when: str) -> None:
        """Expect the parameters or the gradients of one optimizer."""
        values = self.subject.call(f"get_{attribute}", self.handle, self.optimizers[name])
        got = self.subject.to_bits(values, f"get_{attribute}")
        self.subject.expect_same(got, getattr(self.oracle.optimizers[name], attribute), f"{when}: {attribute}")


def _halved(gradient: Bits | None) -> Bits | None:
    return gradient and from_numbers(gradient.dtype, gradient.shape, [value / 2 for value in numbers(gradient)])
