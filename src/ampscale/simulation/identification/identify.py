"""
Which published scaler explains the scales that were seen.

A scaler explains them if there is a pattern of overflows with which it would have had exactly these scales, and which agrees
with the overflows that were seen. The first scale is the first that was seen. Other settings are the published defaults; where
these fail, as few as possible are changed to values that the scales suggest.

Steps are counted from 0, and so are overflows where nothing else was reported.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from ...core.rule import LossScaleRule
from ...core.validation import check_bool, check_number
from ...parsing import excerpt
from ...presets import PRESETS
from ..traces import Observed, Overflow
from .follow_overflows import follow_overflows
from .follow_scales import Contradiction, Followed, follow
from .guessed_settings import guesses

MOST_CHANGES = 4  # with more guesses, what is explained is the guesses


@dataclass(frozen=True, eq=False)
class Explanation:
    """
    Whether one scaler explains what was seen.

    Args:
        name: The preset's, or the one under which the rule was given.
        rule: The rule that was tried last; None where there can be none with these settings.
        settings: What its function was given, by name; the rest are its defaults.
        changed: Those of them that were guessed, since the published defaults fail.
        found: What came of following it.
        refusal: Why there can be no rule with these settings.
    """

    name: str
    rule: LossScaleRule | None
    settings: Mapping[str, Any]
    changed: tuple[str, ...]
    found: Followed
    refusal: str = ""

    @property
    def contradiction(self) -> Contradiction | None:
        """Where it fails; None where it explains all."""
        return self.found.contradiction

    @property
    def finite(self) -> np.ndarray | None:
        """
        Bool, of shape (steps,): one pattern of finite steps with which it explains all; None where it does not.

        Where only overflows were reported, the steps up to the last of them.
        """
        return self.found.finite

    @property
    def ambiguous(self) -> int | None:
        """How many steps can have been finite as well as an overflow; None where that is not known."""
        return self.found.ambiguous

    @property
    def start(self) -> tuple[int, int] | None:
        """The good steps and the overflows that it had counted before this pattern; None where there is none."""
        return self.found.start

    @property
    def explains(self) -> bool:
        """Whether it explains all."""
        return self.contradiction is None


class Candidate(NamedTuple):
    """A scaler whose settings may be guessed."""

    name: str
    make: Callable[..., LossScaleRule]
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
    Which scalers explain what was seen.

    Args:
        seen: The scale at each step, as far as it was seen; or, of a log that does not number the steps, its overflows. A
            number that is the shortest to round to a float32 is taken for that float32.
        candidates: The presets to try, by name, or rules by names of one's own; by default all presets.
        settings: Settings that are known, under the names of the presets' parameters. They are given to all candidates that
            have them, and not guessed.
        rtol: The relative error of the scales, where they were printed with few digits; at most 0.1.
        resumed: The run was taken up at the first scale, so that nothing is known of the steps and overflows counted before.

    Returns:
        One explanation for each candidate: first those that explain all, by the number of settings that were changed; then
        the others, by how far they come; those that are level in the order of the presets. Nothing that was seen tells those
        apart which explain it.

    Raises:
        TypeError: An argument, or a value in *settings*, has the wrong type.
        ValueError: No scale was seen, or of a resumed run not the first; a preset is not known; no candidate has a setting, or
            none admits its value; or *rtol* is out of range.
    """
    check_number(rtol, "rtol", "a number from 0 to 0.1", 0, 0.1)
    check_bool(resumed, "resumed")
    listed, known = _candidates(candidates), dict(settings or {})
    if strange := sorted(set(known) - {name for candidate in listed for name in candidate.defaults}):
        raise ValueError(f"settings must be ones that a candidate has, got {excerpt(strange)}")
    search = _Search(seen, known, rtol, resumed)
    explanations = [search.explanation(candidate) for candidate in listed]
    concerned = [explanation for explanation in explanations if set(known) & set(explanation.settings)]
    if concerned and all(explanation.rule is None for explanation in concerned):
        raise ValueError(f"settings must be ones that a candidate admits, got {excerpt(known)}: {concerned[0].refusal}")
    return sorted(explanations, key=_rank)


def _candidates(given: Iterable[str] | Mapping[str, LossScaleRule] | None) -> list[Candidate]:
    if isinstance(given, Mapping):
        return [_given_rule(name, rule) for name, rule in given.items()]
    if isinstance(given, str):
        raise TypeError(f"candidates must be several names or a mapping from names to rules, got {excerpt(given)}")
    names = list(PRESETS if given is None else given)
    if unknown := [name for name in names if name not in PRESETS]:
        raise ValueError(
            f"candidates must be presets, {', '.join(PRESETS)}, or a mapping from names to rules; got {excerpt(unknown)}"
        )
    return [Candidate(name, PRESETS[name].rule, _defaults(PRESETS[name].rule)) for name in PRESETS if name in names]


def _given_rule(name: str, rule: LossScaleRule) -> Candidate:
    if not isinstance(rule, LossScaleRule):
        raise TypeError(f"the candidate {name} must be a LossScaleRule, got {excerpt(rule)} of type {type(rule).__name__}")
    return Candidate(name, partial(replace, rule), {field.name: getattr(rule, field.name) for field in fields(rule)})


def _defaults(make: Callable[..., LossScaleRule]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}


class _Search:
    """What was seen, and all that is said of it."""

    def __init__(self, seen: Observed | Sequence[Overflow], known: Mapping[str, Any], rtol: float, resumed: bool) -> None:
        self.seen, self.known, self.rtol, self.resumed = seen, known, rtol, resumed
        self.first, self.from_start = _first_scale(seen)
        if resumed and not self.from_start:
            raise ValueError("of a run that was resumed the first scale must have been seen, got none before the first step")
        self._followed: dict[LossScaleRule, Followed] = {}  # many presets are one rule

    def explanation(self, candidate: Candidate) -> Explanation:
        """The first with the fewest changes that explains all, or that cannot be decided; else the one that comes farthest."""
        base = {"init_scale": self.first} if self.from_start and "init_scale" in candidate.defaults else {}
        base |= {name: value for name, value in self.known.items() if name in candidate.defaults}
        failed = []
        for changes in self._changes(candidate, base):
            tried = self._tried(candidate, {**base, **changes}, tuple(changes))
            if tried.contradiction is None or tried.contradiction.undecided:
                return tried
            failed.append(tried)
        return min(failed, key=_rank)

    def _changes(self, candidate: Candidate, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """No change, and then all choices of guesses, by the number of settings that they change."""
        yield {}
        others = {} if self.from_start else {"init_scale": [self.first, 2 * self.first]}
        if not isinstance(self.seen, Observed):  # then the first scale was seen after an overflow, which may have halved it
            others = {name: values[::-1] for name, values in others.items()}
        others |= guesses(self.seen, {**candidate.defaults, **base}, rtol=self.rtol, resumed=self.resumed)
        free = [name for name in others if name not in base]
        for size in range(1, min(len(free), MOST_CHANGES) + 1):
            for names in combinations(free, size):
                for values in product(*(others[name] for name in names)):
                    yield dict(zip(names, values, strict=True))

    def _tried(self, candidate: Candidate, settings: Mapping[str, Any], changed: tuple[str, ...]) -> Explanation:
        try:
            rule = candidate.make(**settings)
        except ValueError as error:
            return Explanation(candidate.name, None, settings, changed, Followed(Contradiction(-1)), str(error))
        if rule not in self._followed:
            self._followed[rule] = self._follow(rule)
        return Explanation(candidate.name, rule, settings, changed, self._followed[rule])

    def _follow(self, rule: LossScaleRule) -> Followed:
        if isinstance(self.seen, Observed):
            return follow(rule, self.seen, self.rtol, resumed=self.resumed)
        return follow_overflows(rule, self.seen, self.rtol, resumed=self.resumed)


def _first_scale(seen: Observed | Sequence[Overflow]) -> tuple[float, bool]:
    """The first scale that was seen, and whether it is the one before the first step."""
    if isinstance(seen, Observed):
        scales = seen.scales
    elif not all(isinstance(each, Overflow) for each in seen):
        raise TypeError(f"seen must be Observed, or a list of overflows, got {excerpt(seen)} of type {type(seen).__name__}")
    else:
        scales = np.array([scale for overflow in seen for scale in (overflow.before, overflow.after)], np.float64)
    at = np.flatnonzero(~np.isnan(scales))
    if not at.size:
        raise ValueError("a scale must have been seen, got none")
    return float(scales[at[0]]), bool(at[0] == 0)


def _rank(explanation: Explanation) -> tuple[int, int]:
    """Those that explain all by their changes; then those that may, and those that do not, by how far they come."""
    contradiction = explanation.contradiction
    if contradiction is None:
        return 0, len(explanation.changed)
    return (1 if contradiction.undecided else 2), -contradiction.step
