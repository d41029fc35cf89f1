"""Chapter 70, backends: host reads, compilation and another process, wrong in one way each."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import map_tree

from . import table
from .loop import Loop

_TABLE, wrong = table()


class OnArrays:
    """
    A right one whose state is arrays of torch or JAX: the rule of torch, for trees that are lists.

    Args:
        arrays: "torch" or "jax".
    """

    def __init__(self, arrays):
        self.info = ImplementationInfo(name=type(self).__name__, level=4, capabilities=("no-host-reads",), arrays=arrays)
        self.xp = import_module({"torch": "torch", "jax": "jax.numpy"}[arrays])

    def create(self, rule):
        """The constants, the scale, and the finite steps counted."""
        return rule, self.xp.asarray(rule.init_scale, dtype=self.xp.float32), self.xp.asarray(0, dtype=self.xp.int32)

    def update(self, handle, finite):
        """A step on a flag of the host."""
        return self.moved(handle, self.xp.asarray(finite))

    def read_scale(self, handle):
        """Read on the host, as it is asked for there."""
        return float(handle[1])

    def step_on_arrays(self, handle, tree):
        """Divides, looks on both sides, and moves."""
        unscaled = [leaf / handle[1] for leaf in tree]
        return self.moved(handle, self.flag([*tree, *unscaled])), unscaled

    def flag(self, arrays):
        """A bool array of shape (): whether all are finite."""
        return self.xp.all(self.xp.stack([self.xp.all(self.xp.isfinite(array)) for array in arrays]))

    def moved(self, handle, finite):
        """The state after a step, chosen among arrays."""
        rule, scale, good = handle
        counted = self.xp.where(finite, good + 1, 0)
        grows = counted >= rule.growth_interval
        moved = self.xp.where(finite, self.xp.where(grows, scale * rule.growth_factor, scale), scale * rule.backoff_factor)
        return rule, moved, self.xp.where(grows, 0, counted)


# --- host reads ---


@wrong("BACKENDS-no-host-sync", "explosion/thinc#746: the flag is looked at once for each parameter", "torch")
class AsksForAnItem(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(all(self.xp.isfinite(array).all().item() for array in arrays))


@wrong("BACKENDS-no-host-sync", "allenai/OLMo-core#309: a skipped step is an `if` on the device's flag", "torch")
class Branches(OnArrays):
    def moved(self, handle, finite):
        return super().moved(handle, self.xp.asarray(True if finite else False))  # noqa: SIM210 - the read is the point


@wrong(
    "BACKENDS-no-host-sync",
    "huggingface/accelerate#1714: the scale is fetched at every step, to see whether it has moved",
    "torch",
)
class LogsTheScale(OnArrays):
    def moved(self, handle, finite):
        self.logged = handle[1].numpy()
        return super().moved(handle, finite)


@wrong("BACKENDS-no-host-sync", "not seen; bad elements are looked up, and how many there are shapes the result", "torch")
class LooksUpBadElements(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(sum(self.xp.nonzero(~self.xp.isfinite(array)).shape[0] for array in arrays) == 0)


@wrong("BACKENDS-no-host-sync", "not seen; a skipped step is a Python `if`, which no trace can follow", "jax")
class BranchesUnderJax(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(bool(super().flag(arrays)))


@wrong("BACKENDS-no-host-sync", "not seen; the scale goes through NumPy between two steps", "jax")
class KeepsTheScaleInNumpy(OnArrays):
    def step_on_arrays(self, handle, tree):
        rule, scale, good = handle
        return super().step_on_arrays((rule, self.xp.asarray(np.asarray(scale)), good), tree)


# --- the step on arrays ---


@wrong("BACKENDS-same-run", "pytorch/pytorch#97415: a fused path looks and does not divide")
class LeavesArraysScaled(Loop):
    def step_on_arrays(self, handle, tree):
        return super().step_on_arrays(handle, tree)[0], tree


@wrong("BACKENDS-same-run", "pytorch/pytorch#95781: a fused path does not hear of found_inf")
class ArraysAreAlwaysFinite(Loop):
    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        self.update(handle, True)
        return handle, unscaled


# --- compiled ---


class _Compiled(Loop):
    """What comes out of the compiler is this class."""

    def compiled(self):
        return self.compiled_form(self.info.preset, self.info.level, self.info.capabilities)

    compiled_form: type[Loop] = Loop


class _FloorOfOne(Loop):
    def constants(self, rule):
        return rule if rule.min_scale is None else replace(rule, min_scale=1.0)


class _NoSignedZeros(Loop):
    def quotient(self, part, scale):
        return super().quotient(part, scale) + part.dtype.type(0)


class _NoInfinities(Loop):
    def finite_elements(self, leaf):
        return leaf == leaf


@wrong("STEP-compiled", "jmp 0.0.4: the floor is no part of the pytree, and comes back as its default")
class LosesItsFloorCompiled(_Compiled):
    compiled_form = _FloorOfOne


@wrong("STEP-compiled", "not seen; the compiler takes minus zero for zero, as fast math may")
class LosesSignsOfZerosCompiled(_Compiled):
    compiled_form = _NoSignedZeros


@wrong("STEP-compiled", "AMReX-Codes/amrex#5667, opencv/opencv#23881: the compiler takes every number for finite")
class TakesInfinityForFiniteCompiled(_Compiled):
    compiled_form = _NoInfinities


# --- another process ---


@wrong("STEP-resume", "huggingface/accelerate#4289: what was saved is right where it was saved, and not in a fresh process")
class SavesAPlaceInMemory(Loop):
    kept: list[Any] = []  # noqa: RUF012 - that all share it is the point

    def save(self, handle):
        self.kept.append(super().save(handle))
        return len(self.kept) - 1

    def load(self, rule, saved):
        return super().load(rule, self.kept[saved])


@wrong("STEP-resume", "Lightning-AI/pytorch-lightning#1782: what is saved holds a function of its own, which cannot be sent")
class SavesAFunction(Loop):
    def save(self, handle):
        return {**super().save(handle), "rule": handle.rule, "scaled": lambda tree: map_tree(handle.scale.__mul__, tree)}


@wrong("STEP-resume", "facebookresearch/metaseq#3: the counts are not saved, and start anew")
class CountsInTheModule(Loop):
    counts: dict[str, int] = {}  # noqa: RUF012 - that all share it is the point

    def save(self, handle):
        self.counts["good"] = handle.good
        return {name: value for name, value in super().save(handle).items() if name != "good"}

    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.good = self.counts.get("good", handle.good)
        return handle


MUTANTS = tuple(_TABLE)
