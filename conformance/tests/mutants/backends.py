"""Mutants of chapter 70, backends: host synchronization, compilation and other processes."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import map_tree

from . import table
from .loop import Loop

_TABLE, breaks = table()


class OnArrays:
    """
    Conforming implementation with torch or JAX arrays as its state: torch's rule, for trees that are lists.

    Args:
        arrays: "torch" or "jax".
    """

    def __init__(self, arrays):
        self.info = ImplementationInfo(name=type(self).__name__, level=4, capabilities=("stays-on-device",), arrays=arrays)
        self.xp = import_module({"torch": "torch", "jax": "jax.numpy"}[arrays])

    def create(self, rule):
        """Return the constants, the scale, and the number of good steps."""
        return rule, self.xp.asarray(rule.init_scale, dtype=self.xp.float32), self.xp.asarray(0, dtype=self.xp.int32)

    def update(self, handle, finite):
        """Run a step with a flag on the host."""
        return self.next_state(handle, self.xp.asarray(finite))

    def read_scale(self, handle):
        """Return the scale as a Python float, which requires a host synchronization."""
        return float(handle[1])

    def step_on_arrays(self, handle, tree):
        """Unscale, check before and after, and update."""
        unscaled = [leaf / handle[1] for leaf in tree]
        return self.next_state(handle, self.flag([*tree, *unscaled])), unscaled

    def flag(self, arrays):
        """Return a bool array of shape (): True if all arrays are finite."""
        return self.xp.all(self.xp.stack([self.xp.all(self.xp.isfinite(array)) for array in arrays]))

    def next_state(self, handle, finite):
        """Return the state after a step, selected with `where`."""
        rule, scale, good = handle
        counted = self.xp.where(finite, good + 1, 0)
        grows = counted >= rule.growth_interval
        moved = self.xp.where(finite, self.xp.where(grows, scale * rule.growth_factor, scale), scale * rule.backoff_factor)
        return rule, moved, self.xp.where(grows, 0, counted)


# --- host synchronization ---


@breaks("BACKENDS-no-host-sync", "explosion/thinc#746: the flag is copied to the host once per parameter", "torch")
class CallsItem(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(all(self.xp.isfinite(array).all().item() for array in arrays))


@breaks("BACKENDS-no-host-sync", "allenai/OLMo-core#309: a skipped step is an `if` on the device's flag", "torch")
class Branches(OnArrays):
    def next_state(self, handle, finite):
        return super().next_state(handle, self.xp.asarray(True if finite else False))  # noqa: SIM210 - synchronizes on purpose


@breaks(
    "BACKENDS-no-host-sync",
    "huggingface/accelerate#1714: the scale is copied to the host at every step, to detect changes",
    "torch",
)
class LogsTheScale(OnArrays):
    def next_state(self, handle, finite):
        self.logged = handle[1].numpy()
        return super().next_state(handle, finite)


@breaks(
    "BACKENDS-no-host-sync", "not observed: non-finite elements are indexed, and their number is the shape of the result", "torch"
)
class IndexesNonFiniteElements(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(sum(self.xp.nonzero(~self.xp.isfinite(array)).shape[0] for array in arrays) == 0)


@breaks("BACKENDS-no-host-sync", "not observed: a skipped step is a Python `if`, which no trace can follow", "jax")
class BranchesUnderJax(OnArrays):
    def flag(self, arrays):
        return self.xp.asarray(bool(super().flag(arrays)))


@breaks("BACKENDS-no-host-sync", "not observed: the scale is converted to NumPy between two steps", "jax")
class KeepsTheScaleInNumpy(OnArrays):
    def step_on_arrays(self, handle, tree):
        rule, scale, good = handle
        return super().step_on_arrays((rule, self.xp.asarray(np.asarray(scale)), good), tree)


# --- the step on arrays ---


@breaks("BACKENDS-same-run", "pytorch/pytorch#97415: a fused path checks and does not divide")
class LeavesArraysScaled(Loop):
    def step_on_arrays(self, handle, tree):
        return super().step_on_arrays(handle, tree)[0], tree


@breaks("BACKENDS-same-run", "pytorch/pytorch#95781: a fused path ignores found_inf")
class TreatsArraysAsFinite(Loop):
    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        self.update(handle, True)
        return handle, unscaled


# --- compiled ---


class _CompilesToAnotherClass(Loop):
    """Implementation whose compiled form is another class."""

    def compiled(self):
        return self.compiled_form(self.info.preset, self.info.level, self.info.capabilities)

    compiled_form: type[Loop] = Loop


class _MinimumOfOne(Loop):
    def constants(self, rule):
        return rule if rule.min_scale is None else replace(rule, min_scale=1.0)


class _NoSignedZeros(Loop):
    def quotient(self, part, scale):
        return super().quotient(part, scale) + part.dtype.type(0)


class _NoInfinities(Loop):
    def finite_elements(self, leaf):
        return leaf == leaf


@breaks("STEP-compiled", "jmp 0.0.4: the minimum is not part of the pytree, and becomes the default")
class LosesMinimumCompiled(_CompilesToAnotherClass):
    compiled_form = _MinimumOfOne


@breaks("STEP-compiled", "not observed: the compiler treats -0.0 as 0.0, as fast math permits")
class LosesSignsOfZerosCompiled(_CompilesToAnotherClass):
    compiled_form = _NoSignedZeros


@breaks("STEP-compiled", "AMReX-Codes/amrex#5667, opencv/opencv#23881: the compiler assumes that every number is finite")
class TreatsInfinityAsFiniteCompiled(_CompilesToAnotherClass):
    compiled_form = _NoInfinities


# --- another process ---


@breaks("STEP-resume", "huggingface/accelerate#4289: the checkpoint is valid where it was saved, and not in a new process")
class SavesAnIndexInMemory(Loop):
    kept: list[Any] = []  # noqa: RUF012 - shared on purpose

    def save(self, handle):
        self.kept.append(super().save(handle))
        return len(self.kept) - 1

    def load(self, rule, saved):
        return super().load(rule, self.kept[saved])


@breaks("STEP-resume", "Lightning-AI/pytorch-lightning#1782: the checkpoint contains a local function, which cannot be sent")
class SavesAFunction(Loop):
    def save(self, handle):
        return {**super().save(handle), "rule": handle.rule, "scaled": lambda tree: map_tree(handle.scale.__mul__, tree)}


@breaks("STEP-resume", "facebookresearch/metaseq#3: the counts are not saved, and restart")
class CountsInTheModule(Loop):
    counts: dict[str, int] = {}  # noqa: RUF012 - shared on purpose

    def save(self, handle):
        self.counts["good"] = handle.good
        return {name: value for name, value in super().save(handle).items() if name != "good"}

    def load(self, rule, saved):
        handle = super().load(rule, saved)
        handle.good = self.counts.get("good", handle.good)
        return handle


MUTANTS = tuple(_TABLE)
