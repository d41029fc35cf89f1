"""What a format is: the entries that a published scaler saves, and how they say a rule and a state of the one machine."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule
from ...presets import PRESETS
from ..state import Checkpoint, arrays_of, check_reachable, numbers_of, plain
from .entries import Kind

Entries = dict[str, Any]


def same(value: Any) -> Any:
    """*value* itself."""
    return value


class Constant(NamedTuple):
    """A constant of the rule under a scaler's own name, and in its own terms."""

    key: str
    field: str
    kind: Kind
    decode: Callable[[Any], Any] = same  # from the scaler's terms to the rule's
    encode: Callable[[Any], Any] = same  # and back


@dataclass(frozen=True)
class Format:
    """
    What a published scaler saves.

    Args:
        name: The scaler's, in `presets` too.
        scale: The key of the scale.
        state: The entries of its state.
        read: The counts of finite steps and of overflows that such entries say of a scaler with a rule.
        write: Such entries, as the published scaler takes them, for a state in Python numbers.
        taken: How the published scaler takes the entries.
        saved: The constants that it saves beside its state.
        given: Those that its constructor takes and a checkpoint does not hold, but may.
        reciprocal: Where there is one factor, the backoff factor that goes with a growth factor.
        beside: Patterns of the keys of what is saved in the same mapping and is not the scaler's.
    """

    name: str
    scale: str
    state: Mapping[str, Kind]
    read: Callable[[Entries, LossScaleRule], tuple[int, int]]
    write: Callable[[LossScaleState, LossScaleRule], Entries]
    taken: str
    saved: tuple[Constant, ...] = ()
    given: tuple[Constant, ...] = ()
    reciprocal: Callable[[float], float] | None = None
    beside: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The keys that a mapping must have."""
        return (*self.state, *(constant.key for constant in self.saved))

    @property
    def settings(self) -> tuple[str, ...]:
        """The keys that a mapping may have, too: what a constructor was called with."""
        return tuple(constant.key for constant in self.given)

    def strange(self, keys: list[str]) -> list[str]:
        """Those of *keys* that have no place in this format."""
        known = {*self.needed, *self.settings}
        return [key for key in keys if key not in known and not any(fnmatchcase(str(key), each) for each in self.beside)]

    def load(self, mapping: Mapping[str, Any], rule: LossScaleRule | None) -> Checkpoint:
        """The checkpoint that *mapping*, which has the keys of this format, says."""
        constants = [constant for constant in (*self.saved, *self.given) if constant.key in mapping]
        kinds = {**self.state, **{constant.key: constant.kind for constant in constants}}
        entries = _checked(self.name, kinds, mapping)
        found = {constant.field: constant.decode(entries[constant.key]) for constant in constants}
        held = self._rule(found, entries[self.scale]) if rule is None else _agreeing(self.name, rule, found)
        try:
            state = LossScaleState(entries[self.scale], *self.read(entries, held))
            check_reachable(held, state)
        except ValueError as problem:
            raise ValueError(f"this is no state of {self.name}: {problem}") from problem
        assumed = {constant.field: getattr(held, constant.field) for constant in self.given if constant not in constants}
        ignored = tuple(key for key in mapping if key not in kinds)
        return Checkpoint(held, arrays_of(held, state), assumed if rule is None else {}, ignored=ignored)

    def fitted(self, checkpoint: Checkpoint) -> Checkpoint:
        """Where a scaler of this format stands that is to go on as *checkpoint* would, as nearly as it can."""
        source, state = plain(checkpoint)
        scale = _rounded(state.scale if state.pending_scale is None else state.pending_scale, self._preset().dtype)
        found = {each.field: _held(each, getattr(source, each.field)) for each in (*self.saved, *self.given)}
        rule = self._rule({field: value[0] for field, value in found.items() if value}, scale)
        good = min(max(state.good_steps, rule.initial_good_steps), rule.growth_interval - 1)
        forgotten = "finite" in rule.reset_bad_steps_on and good > rule.initial_good_steps  # by the finite steps since
        bad = 0 if forgotten else min(state.bad_steps, rule.hysteresis - 1)
        return Checkpoint(rule, arrays_of(rule, LossScaleState(scale, good, bad)))

    def entries(self, checkpoint: Checkpoint) -> Entries:
        """What the published scaler saves where *checkpoint* stands."""
        return {**self.write(numbers_of(checkpoint.state), checkpoint.rule), **_encoded(self.saved, checkpoint.rule)}

    def settings_of(self, rule: LossScaleRule) -> Entries:
        """What the published scaler must be constructed with, under its own names, to run *rule*."""
        return _encoded(self.given, rule)

    def _preset(self) -> LossScaleRule:
        return PRESETS[self.name].rule()

    def _rule(self, constants: Mapping[str, Any], scale: float) -> LossScaleRule:
        """The rule of the published scaler with *constants*."""
        preset = self._preset()
        if self.reciprocal is not None and "growth_factor" in constants:
            constants = {**constants, "backoff_factor": self.reciprocal(constants["growth_factor"])}
        low = constants.get("min_scale", preset.min_scale) or 0.0
        high = math.inf if preset.max_scale is None else preset.max_scale
        return replace(preset, **constants, init_scale=min(max(scale, low), high))


def _checked(name: str, kinds: Mapping[str, Kind], mapping: Mapping[str, Any]) -> Entries:
    """The entries in Python values; one error for all that are wrong."""
    entries, problems = {}, []
    for key, kind in kinds.items():
        try:
            entries[key] = kind(mapping[key], key)
        except (TypeError, ValueError) as problem:
            problems.append(str(problem))
    if problems:
        raise ValueError(f"this is no state of {name}: {'; '.join(problems)}")
    return entries


def _agreeing(name: str, rule: LossScaleRule, found: Mapping[str, Any]) -> LossScaleRule:
    """*rule*, which says nothing else than the file."""
    other = {field: (value, getattr(rule, field)) for field, value in found.items() if getattr(rule, field) != value}
    if other:
        texts = [f"{field} is {in_file!r} in the file and {in_rule!r} in the rule" for field, (in_file, in_rule) in other.items()]
        raise ValueError(f"the rule must agree with what {name} saved: {'; '.join(texts)}")
    return rule


def _held(constant: Constant, value: Any) -> tuple[Any] | None:
    """What the scaler makes of a constant, in the rule's terms; None where it has no such value."""
    try:
        return (constant.decode(constant.kind(constant.encode(value), constant.key)),)
    except (TypeError, ValueError):
        return None


def _encoded(constants: tuple[Constant, ...], rule: LossScaleRule) -> Entries:
    return {constant.key: constant.encode(getattr(rule, constant.field)) for constant in constants}


def _rounded(scale: float, dtype: str) -> float:
    """*scale* in a dtype."""
    with np.errstate(over="ignore", under="ignore"):
        held = float(np.asarray(scale, dtype))
    if not 0 < held < math.inf:
        raise ValueError(f"the scale {scale!r} would be {held!r} in {dtype}, in which the target holds it")
    return held
