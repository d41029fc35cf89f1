"""Faulty adapters from which the tests make scripts. They are in a file, so that their source can be read."""

import json
import os
from dataclasses import dataclass

import numpy as np
from ampscale_conformance import Adapter, ImplementationInfo, Unsupported, on_ranks

from ampscale import LossScaleRule

LATE = 1


def doubled(scale: float) -> float:
    """Return twice the scale. A method refers to this function, so that the script contains it."""
    return scale * 2


def unused() -> None:
    """Do nothing. No method refers to this function, so that no script contains it."""


@dataclass
class State:
    """Handle. The script contains its decorator."""

    scale: float
    good: int = 0


class GrowsLate(Adapter):
    """Adapter that grows one step late. A finite step changes its handle in place, and an overflow returns a new one."""

    info = ImplementationInfo(name="late", version="1.0", level=1, capabilities={"resume", "float16"})

    def create(self, rule: LossScaleRule, **options: object) -> State:
        if rule.growth_factor != 2:
            raise Unsupported("the growth factor must be 2")
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


class ScaleAsFloat64(GrowsLate):
    """Subclass: the script contains the inherited methods."""

    def create(self, rule, **options):
        self.rule = rule
        return State(np.float64(rule.init_scale))


class Configured(GrowsLate):
    """Adapter with an attribute of its own."""

    def __init__(self, by):
        self.by = by

    def create(self, rule, **options):
        return State(rule.init_scale * self.by)


class RequiresAmpscale(GrowsLate):
    """Adapter whose method uses ampscale."""

    def create(self, rule, **options):
        return State(LossScaleRule(init_scale=rule.init_scale * 4).init_scale)


class BacksOffOnArrays:
    """Functional scaler with a compiled form. Each step divides the scale by 4 instead of 2."""

    info = ImplementationInfo(name="functional", level=4, capabilities={"float16"})

    def create(self, rule):
        return rule.init_scale

    def compiled(self):
        return BacksOffOnArrays()

    def step_on_arrays(self, handle, tree):
        return handle / 4, tree

    def read_scale(self, handle):
        return handle


class IgnoresTheLearningRate:
    """Training cell that receives options and ignores them in its step."""

    info = ImplementationInfo(name="rateless", level=3)

    def create_cell(self, rule, parameters, **options):
        assert options["learning_rate"] == 0.5
        return [parameter.copy() for parameter in parameters]

    def train_step(self, cell, data):
        return {"parameters": [parameter - slope for parameter, slope in zip(cell, data, strict=True)], "finite": True}


class RaisesOfALibrary(GrowsLate):
    """Adapter that raises an error whose class a traceback writes with its module, after output that is not UTF-8."""

    def create(self, rule, **options):
        os.write(2, b"\xff\n")
        raise json.JSONDecodeError("no state", "", 0)


class RaisesASurrogate(GrowsLate):
    """Adapter whose error quotes a file name that is not UTF-8."""

    def create(self, rule, **options):
        raise ValueError("no file \udcff")


class KeepsTensors:
    """Adapter of torch that does not scale."""

    info = ImplementationInfo(name="keeps", level=1, capabilities={"bfloat16"}, arrays="torch")

    def create(self, rule):
        return rule.init_scale

    def scale(self, handle, tree):
        return tree


class ScalesInALambda(GrowsLate):
    """Adapter with a method whose source lines are not valid Python alone."""

    read_scale, unused = (
        lambda _, state: state.scale * 2, None)  # fmt: skip


class NeverStepsOnRanks:
    """Adapter whose function on ranks is in this module."""

    info = ImplementationInfo(name="ranks", level=5, capabilities={"ranks"})

    def train_on_ranks(self, rule, placements, steps, optimizers):
        return on_ranks(never_step, len(steps[0]), steps)


def never_step(_rank, _size, steps):
    return [[1024.0, False] for _ in steps]
