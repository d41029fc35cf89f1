"""Adapters that are wrong in one way each, for scripts to be made of; they lie in a file, as a stranger's do."""

from dataclasses import dataclass

import numpy as np
from ampscale_conformance import Adapter, ImplementationInfo, Unsupported

from ampscale import LossScaleRule

LATE = 1


def doubled(scale: float) -> float:
    """Named by a method, and so part of its script."""
    return scale * 2


def unused() -> None:
    """Named by none."""


@dataclass
class State:
    """A handle; its decorator is part of it."""

    scale: float
    good: int = 0


class GrowsLate(Adapter):
    """Changed in place, and late."""

    info = ImplementationInfo(name="late", version="1.0", level=1, capabilities={"resume"})

    def create(self, rule: LossScaleRule, **options: object) -> State:
        if rule.growth_factor != 2:
            raise Unsupported("it doubles, and nothing else")
        self.rule = rule
        return State(rule.init_scale)

    def update(self, handle, finite):
        handle.good = handle.good + 1 if finite else 0
        if handle.good == self.rule.growth_interval + LATE:  # one step too late
            handle.scale, handle.good = self._grown(handle), 0
        return None if finite else State(handle.scale / 2)

    def _grown(self, handle):
        return doubled(handle.scale)

    def read_scale(self, handle):
        return handle.scale

    def scale(self, handle, tree):
        return [leaf * np.float16(handle.scale) for leaf in tree]

    def all_finite(self, tree):
        raise OverflowError("too large")


class HeldWidely(GrowsLate):
    """An heir: what it inherits is part of its script."""

    def create(self, rule, **options):
        self.rule = rule
        return State(np.float64(rule.init_scale))


class Configured(GrowsLate):
    """Made with a setting of its own."""

    def __init__(self, by):
        self.by = by

    def create(self, rule, **options):
        return State(rule.init_scale * self.by)


class NeedsAmpscale(GrowsLate):
    """Its method does not do without ampscale."""

    def create(self, rule, **options):
        return State(LossScaleRule(init_scale=rule.init_scale * 4).init_scale)


class ForgetsTheRate:
    """A cell that is made with options, and whose step does not look at them."""

    info = ImplementationInfo(name="rateless", level=3)

    def create_cell(self, rule, parameters, **options):
        assert options["learning_rate"] == 0.5
        return [parameter.copy() for parameter in parameters]

    def train_step(self, cell, data):
        return {"parameters": [parameter - slope for parameter, slope in zip(cell, data, strict=True)], "finite": True}
