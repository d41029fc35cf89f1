"""Comparison of several rules along one overflow trace. Steps are counted from 0."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from ..core.rule import LossScaleRule
from ..parsing import excerpt
from .simulate import Trajectory, simulate
from .traces import Trace


@dataclass(frozen=True, eq=False)
class Comparison:
    """
    Trajectories of several rules along one overflow trace, and their divergences.

    Args:
        trajectories: Trajectory of each rule by its name, in the order of the rules.
        divergences: Step at which each pair of rules diverges, by the names of both rules; None if they do not diverge.

    >>> from ampscale import presets
    >>> from ampscale.simulation import from_string
    >>> comparison = compare({"torch": presets.torch(), "nemo": presets.nemo(hysteresis=2)}, from_string("..x"))
    >>> list(comparison.trajectories), comparison.divergences
    (['torch', 'nemo'], {('torch', 'nemo'): 2})
    """

    trajectories: dict[str, Trajectory]
    divergences: dict[tuple[str, str], int | None]


def compare(rules: Mapping[str, LossScaleRule], trace: Trace) -> Comparison:
    """
    Simulate *rules* along *trace*, and find the step at which each pair of them diverges.

    Args:
        rules: At least one rule, by names of your choice.
        trace: Overflow trace.

    Raises:
        TypeError: A rule is not a `LossScaleRule`, or *trace* is not a `Trace`.
        ValueError: *rules* is empty.

    >>> from ampscale import presets
    >>> from ampscale.simulation import from_string
    >>> rules = {"torch": presets.torch(), "paddle": presets.paddle(), "static": presets.static(2.0**16)}
    >>> compare(rules, from_string("..x.")).divergences
    {('torch', 'paddle'): None, ('torch', 'static'): 2, ('paddle', 'static'): 2}
    """
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules must be a mapping from names to rules, got {excerpt(rules)} of type {type(rules).__name__}")
    if not rules:
        raise ValueError("rules must contain at least one rule, got none")
    trajectories = {name: simulate(rule, trace) for name, rule in rules.items()}
    divergences = {(left, right): divergence(trajectories[left], trajectories[right]) for left, right in combinations(rules, 2)}
    return Comparison(trajectories, divergences)


def divergence(left: Trajectory, right: Trajectory) -> int | None:
    """
    Return the step at which two trajectories along the same trace diverge.

    Trajectories diverge at the first step after which their scales differ, or at which only one of the two published scalers
    raises an error. The result is -1 if the initial scales differ, and None if the trajectories do not diverge.
    """
    shared = min(left.scales.size, right.scales.size)
    differs = left.scales[:shared] != right.scales[:shared]
    if differs.any():
        return int(differs.argmax()) - 1
    return None if left.scales.size == right.scales.size else shared - 1
