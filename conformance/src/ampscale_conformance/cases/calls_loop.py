"""Hand-written training loop over an implementation, next to the oracle's loop; after each call all values are compared."""

import math
from collections.abc import Iterable
from itertools import count, islice
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import Bits
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle import calls, tensors
from ..oracle.tensors import array

SIMPLE = {"growth_factor": 2.0, "backoff_factor": 0.5, "hysteresis": 1}
SHAPES = {"a": ((2,), (), (1, 2)), "b": ((1,), (3,)), "c": ((0,), (2, 2), ())}  # of the parameters of each optimizer
FINITE = (1.0, -2.0, 0.5, 3.0, 0.0, -0.25, 1.5)  # gradients; a prime number, so that each element has each of them
SPECIAL = {
    "inf": (math.inf, math.nan, -math.inf),
    "wide": (2.0**100, 2.0**-100, -(2.0**100), -0.0),
    "huge": (2.0**127, -(2.0**127)),  # already scaled: infinite when divided by a scale below 1
}


def simple_rule(subject: Subject, **settings: Any) -> Any:
    """Return the supported rule with these settings and, where they can be set, factors of 2 and 0.5 and a hysteresis of 1."""
    return subject.rule(**{name: value for name, value in SIMPLE.items() if name in subject.supported.parameters} | settings)


def is_static(rule: Any) -> bool:
    """Return True if the scale never changes."""
    return bool(rule.growth_factor == rule.backoff_factor == 1)


def needs_power_of_two(scale: float) -> None:
    """Raise Unsupported for other scales, at which conforming implementations can differ in the last bit."""
    if math.frexp(scale)[0] != 0.5:
        raise Unsupported(f"its scale is {scale!r}, and the expected values are exact only for powers of two")


class Loop:
    """
    Training loop. Each optimizer is added when a command first names it.

    *returns_applied* is True if the implementation's `step` returns whether the optimizer stepped. *start* determines the first
    gradients; later ones have other values, and infinities and missing gradients in other places.
    """

    def __init__(self, subject: Subject, rule: Any, returns_applied: bool, start: int = 0) -> None:
        self.subject, self.rule, self.returns_applied = subject, rule, returns_applied
        self.oracle = calls.Loop(rule, {})
        self.handle = subject.create(rule)
        self.optimizers: dict[str, Any] = {}
        self.gradients: dict[str, list[Bits | None]] = {}  # expected; where any values are permitted, the last ones
        self._numbers = count(start)

    def execute(self, command: str, when: str) -> None:
        """Execute one command of a script, as `calls.py` describes it, and compare all values."""
        action, _, name = command.partition("/")
        action, _, kind = action.partition(":")
        name = name or "a"
        if action == "update":
            self.update_scale(when)
        elif action in ("set", "edit"):
            if name not in self.optimizers:
                self.add(name)
            self.set_gradients(name, self.new_gradients(name, kind, edits=action == "edit"))
        else:
            self.unscale_or_step(action, name, when)

    def add(self, name: str) -> None:
        """Add an optimizer."""
        parameters = [array("float32", [8.0, -4.0, 3.0, 6.0][: math.prod(shape)], shape) for shape in SHAPES[name]]
        self.oracle.optimizers[name] = calls.Optimizer(parameters)
        self.optimizers[name] = self.subject.call("add_optimizer", self.handle, self.subject.to_arrays(parameters))

    def new_gradients(self, name: str, kind: str, edits: bool) -> list[Bits | None]:
        """Return the gradients of `set:kind`, scaled, or of `edit:kind`."""
        if not (edits or kind == "huge"):
            needs_power_of_two(self.oracle.scale)
        number, shapes = next(self._numbers), SHAPES[name]
        values = [FINITE[(number + place) % len(FINITE)] for place in range(sum(map(math.prod, shapes)))]
        for specials in (SPECIAL[part] for part in kind.split("+") if part in SPECIAL):
            place, turn = number % len(values), number // len(values)
            values[place] = specials[(number + turn) % len(specials)]
        rest, factor = iter(values), 1.0 if edits or kind == "huge" else self.oracle.scale
        made = [tensors.scale(array("float32", list(islice(rest, math.prod(shape))), shape), factor) for shape in shapes]
        missing = range(len(shapes)) if kind == "none" else [number % len(shapes)] if "some" in kind else []
        return [None if index in missing else leaf for index, leaf in enumerate(made)]

    def set_gradients(self, name: str, gradients: list[Bits | None]) -> None:
        """Set the gradients of both loops."""
        self.oracle.set_gradients(name, gradients)
        self.gradients[name] = gradients
        self.subject.call("set_gradients", self.handle, self.optimizers[name], self.subject.to_arrays(gradients))

    def unscale_or_step(self, action: str, name: str, when: str) -> None:
        """Call `unscale_` or `step`. Later gradients of a skipped or applied step are not specified, except None."""
        optimizer = self.oracle.optimizers[name]
        try:
            expected = getattr(self.oracle, action)(name)
        except calls.Rejected:
            self.expect_error(when, action, name)
            return
        result = self.subject.call(action, self.handle, self.optimizers[name])
        if action == "step" and self.returns_applied and optimizer.has_gradients:
            applied = self.subject.flag(result, "step")
            self.subject.expect(applied == expected, f"{when}: expected step to return {expected}, got {applied}")
        self.gradients[name] = optimizer.gradients
        self.compare(when, [name], any_gradients=action == "step" or not optimizer.finite)

    def update_scale(self, when: str) -> None:
        """Call `update_scale`, which ends the iteration."""
        try:
            ends = self.oracle.update()
        except calls.Rejected:
            self.expect_error(when, "update_scale")
            return
        if not ends:
            raise Unsupported("the published scaler raises an error at this overflow")
        self.subject.call("update_scale", self.handle)
        self.compare(when, self.optimizers, any_gradients=True)

    def expect_error(self, when: str, method: str, *names: str) -> None:
        """Expect the call to raise an error, and to change nothing."""
        if is_static(self.rule):
            raise Unsupported("its scale is static, so step may end the iteration: CALLS-fixed")
        raised = self.subject.raises(method, self.handle, *(self.optimizers[name] for name in names))
        self.subject.expect(raised, f"{when}: expected {method} to raise an error, got none")
        self.compare(when, names or self.optimizers)

    def compare(self, when: str, names: Iterable[str], any_gradients: bool = False) -> None:
        """Compare the scale, and the parameters and gradients of these optimizers; what changes in others is found later."""
        scale = self.subject.read_scale(self.handle)
        self.oracle.observe(rounded(scale, self.rule.dtype))
        expected = self.oracle.scale
        self.subject.expect(rounded(scale, self.rule.dtype) == expected, f"{when}: expected scale {expected!r}, got {scale!r}")
        for name in names:
            label = f" of optimizer {name}" if len(self.optimizers) > 1 else ""
            parameters = self.values("parameters", name)
            self.subject.expect_same(parameters, self.oracle.optimizers[name].parameters, f"{when}: parameters{label}")
            gradients = self.values("gradients", name)
            if any_gradients:  # but None stays None
                pairs = zip(self.gradients[name], gradients, strict=False)
                self.gradients[name] = [None if leaf is None else value for leaf, value in pairs]
            self.subject.expect_same(gradients, self.gradients[name], f"{when}: gradients{label}")

    def values(self, attribute: str, name: str) -> Any:
        """Return the parameters or the gradients of one optimizer."""
        values = self.subject.call(f"get_{attribute}", self.handle, self.optimizers[name])
        return self.subject.to_bits(values, f"get_{attribute}")
