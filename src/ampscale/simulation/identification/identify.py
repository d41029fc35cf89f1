"""
Search for the published scalers that are consistent with observed scales.

A scaler is consistent if it has exactly the observed scales along some overflow trace that agrees with the observed flags. Its
initial scale is the first observed scale. Its other settings are the published defaults; if the defaults are inconsistent, as few
settings as possible are inferred from the scales.

Steps are counted from 0. If a log reports overflows only, the overflows are counted from 0 instead.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from ...core.rule import LossScaleRule
from ...core.validation import check_bool, check_number, check_type
from ...parsing import excerpt
from ...presets import PRESETS
from ..traces import Observed, Overflow
from .follow_overflows import follow_overflows
from .follow_scales import Contradiction, Followed, Steps, follow, steps_of
from .guessed_settings import guesses, scales_in_order

MOST_CHANGES = 4  # maximum number of inferred settings; with more, a match would mean little


@dataclass(frozen=True, eq=False)
class Explanation:
    """
    Result of `identify` for one scaler.

    Args:
        name: Name of the preset, or the name under which the rule was given.
        rule: Consistent or undecided rule, or else the rule with the latest contradiction; None if the settings are invalid.
        settings: Arguments of the preset, by name; all other arguments have their defaults.
        changed: Names of the inferred settings.
        contradiction: First contradiction; None if the scaler is consistent with the whole observation.
        finite: Finite flags of a consistent trace, a bool array of shape (steps,); None if the scaler is inconsistent. If only
            overflows were reported, the trace ends with the last of them.
        ambiguous: Number of steps at which a finite step and an overflow are both possible; None if this is unknown.
        start: Counts of good steps and of overflows before the trace; None if the scaler is inconsistent.
        rejection: Reason why the settings are invalid.

    >>> observed = Observed(np.array([8.0, 8.0, 4.0]), np.array([1, 0], np.int8))
    >>> [explanation] = identify(observed, ["torch"])
    >>> explanation.explains, explanation.settings, explanation.finite.tolist()
    (True, {'init_scale': 8.0}, [True, False])
    """

    name: str
    rule: LossScaleRule | None
    settings: Mapping[str, Any]
    changed: tuple[str, ...]
    contradiction: Contradiction | None
    finite: np.ndarray | None = None
    ambiguous: int | None = None
    start: tuple[int, int] | None = None
    rejection: str = ""

    @property
    def explains(self) -> bool:
        """Return True if the scaler is consistent with the whole observation."""
        return self.contradiction is None


class Candidate(NamedTuple):
    """Scaler whose settings can be inferred."""

    name: str
    make: Callable[..., LossScaleRule]  # function from settings to a rule
    defaults: Mapping[str, Any]


def identify(
    seen: Observed | Sequence[Overflow],
    candidates: Iterable[str] | Mapping[str, LossScaleRule] | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    rtol: float = 0.0,
    resumed: bool = False,
) -> list[Explanation]:
    """
    Search for the scalers that are consistent with an observation.

    Args:
        seen: Scale at each step, as far as known; or the overflows of a log that does not number its steps. Scales are rounded
            to the dtype of the rule.
        candidates: Presets to try, by name, or rules under any names; by default all presets.
        settings: Known settings, under the names of the presets' parameters. Each applies to all candidates that have this
            parameter, and is not inferred.
        rtol: Relative error of the scales, if they were printed with few digits; at most 0.1.
        resumed: True if the run was resumed at the first scale, with unknown counts of steps and overflows.

    Returns:
        One explanation for each candidate: first consistent candidates, by the number of inferred settings; then undecided ones,
        and then inconsistent ones, both with the latest contradiction first. Ties are in the order of the presets or the mapping.

    Raises:
        TypeError: An argument, or a value in *settings*, has the wrong type.
        ValueError: No scale is known, or the first scale of a resumed run is unknown; a preset is unknown; no candidate has a
            setting or accepts its value; or *rtol* is out of range.

    >>> observed = Observed(np.array([8.0, 8.0, 8.0, 4.0]), np.array([0, 0, 0], np.int8))
    >>> [result.name for result in identify(observed, ["torch", "megatron"], {"hysteresis": 3}) if result.explains]
    ['megatron']
    """
    check_number(rtol, "rtol", "a number from 0 to 0.1", 0, 0.1)
    check_bool(resumed, "resumed")
    if not isinstance(seen, Observed) and not all(isinstance(overflow, Overflow) for overflow in seen):
        actual = f"{excerpt(seen)} of type {type(seen).__name__}"
        raise TypeError(f"seen must be an Observed or a list of Overflow objects, got {actual}")
    to_try = _candidates(candidates)
    known_settings = dict(settings or {})
    if unknown := sorted(set(known_settings) - {name for candidate in to_try for name in candidate.defaults}):
        raise ValueError(f"settings must be parameters of at least one candidate, got {excerpt(unknown)}")
    search = _Search(seen, known_settings, rtol, resumed)
    explanations = [search.best_explanation(candidate) for candidate in to_try]
    affected = [explanation for explanation in explanations if set(known_settings) & set(explanation.settings)]
    if affected and all(explanation.rule is None for explanation in affected):
        raise ValueError(
            f"settings must be valid for at least one candidate, got {excerpt(known_settings)}: {affected[0].rejection}"
        )
    return sorted(explanations, key=_sort_key)


def _candidates(candidates: Iterable[str] | Mapping[str, LossScaleRule] | None) -> list[Candidate]:
    if isinstance(candidates, Mapping):
        for name, rule in candidates.items():
            check_type(rule, f"the candidate {name}", LossScaleRule)
        return [Candidate(name, partial(replace, rule), asdict(rule)) for name, rule in candidates.items()]
    if isinstance(candidates, str):
        raise TypeError(f"candidates must be several names or a mapping from names to rules, got {excerpt(candidates)}")
    names = list(PRESETS if candidates is None else candidates)
    if unknown := [name for name in names if name not in PRESETS]:
        expected = f"presets, {', '.join(PRESETS)}, or a mapping from names to rules"
        raise ValueError(f"candidates must be {expected}; got {excerpt(unknown)}")
    return [Candidate(name, PRESETS[name].rule, defaults_of(PRESETS[name].rule)) for name in PRESETS if name in names]


def defaults_of(make: Callable[..., LossScaleRule]) -> dict[str, Any]:
    """Return the default of each parameter of a function that creates rules."""
    return {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}


class _Search:
    """Search for rules that are consistent with one observation. Stores the result of following each rule."""

    def __init__(self, seen: Observed | Sequence[Overflow], known: Mapping[str, Any], rtol: float, resumed: bool) -> None:
        self.seen, self.known, self.rtol, self.resumed = seen, known, rtol, resumed
        scales = scales_in_order(seen)
        known_indices = np.flatnonzero(~np.isnan(scales))
        if not known_indices.size:
            raise ValueError("at least one scale must be known, got none")
        self.first_scale = float(scales[known_indices[0]])
        self.from_start = bool(known_indices[0] == 0)  # True if this is the scale before the first step
        if resumed and not self.from_start:
            raise ValueError("resumed=True requires a scale before the first step, got none")
        self._steps: dict[str, Steps] = {}  # by the dtype of the rules
        self._followed: dict[LossScaleRule, Followed] = {}  # many presets have the same rule

    def best_explanation(self, candidate: Candidate) -> Explanation:
        """Return the consistent or undecided explanation with the fewest inferred settings, else the latest contradiction."""
        base = {"init_scale": self.first_scale} if self.from_start and "init_scale" in candidate.defaults else {}
        base |= {name: value for name, value in self.known.items() if name in candidate.defaults}
        inconsistent = []
        for changes in self._changes(candidate, base):
            explanation = self._explanation(candidate, {**base, **changes}, tuple(changes))
            if explanation.contradiction is None or explanation.contradiction.undecided:
                return explanation
            inconsistent.append(explanation)
        return min(inconsistent, key=_sort_key)

    def _changes(self, candidate: Candidate, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield {}, and then all combinations of inferred settings, from one setting up to `MOST_CHANGES`."""
        yield {}
        first_scales = [self.first_scale, 2 * self.first_scale]
        if not isinstance(self.seen, Observed):
            first_scales.reverse()  # the first known scale follows an overflow, which may have halved the scale
        guessed = {} if self.from_start else {"init_scale": first_scales}
        guessed |= guesses(self.seen, {**candidate.defaults, **base}, rtol=self.rtol, resumed=self.resumed)
        free = [name for name in guessed if name not in base]
        for size in range(1, min(len(free), MOST_CHANGES) + 1):
            for names in combinations(free, size):
                for values in product(*(guessed[name] for name in names)):
                    yield dict(zip(names, values, strict=True))

    def _explanation(self, candidate: Candidate, settings: Mapping[str, Any], changed: tuple[str, ...]) -> Explanation:
        """Return the explanation by the rule with exactly these *settings*, of which those in *changed* were inferred."""
        try:
            rule = candidate.make(**settings)
        except ValueError as error:
            return Explanation(candidate.name, None, settings, changed, Contradiction(-1), rejection=str(error))
        if rule not in self._followed:
            self._followed[rule] = self._follow(rule)
        return Explanation(candidate.name, rule, settings, changed, **vars(self._followed[rule]))

    def _follow(self, rule: LossScaleRule) -> Followed:
        if not isinstance(self.seen, Observed):
            return follow_overflows(rule, self.seen, self.rtol, resumed=self.resumed)
        if rule.dtype not in self._steps:
            self._steps[rule.dtype] = steps_of(rule, self.seen)
        return follow(rule, self._steps[rule.dtype], self.rtol, resumed=self.resumed)


def _sort_key(explanation: Explanation) -> tuple[int, int]:
    """Return the sort key: consistent before undecided before inconsistent, then fewest settings or latest contradiction."""
    contradiction = explanation.contradiction
    if contradiction is None:
        return 0, len(explanation.changed)
    return (1 if contradiction.undecided else 2), -contradiction.step
