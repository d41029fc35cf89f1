"""Description of a published scaler's format: its entries, and how they encode a rule and a state."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule
from ...presets import PRESETS
from ..state import Checkpoint, arrays_of, canonical, check_reachable, numbers_of
from .entries import Converter

Entries = dict[str, Any]


class Constant(NamedTuple):
    """Constant of a published scaler, and the corresponding field of `LossScaleRule`."""

    key: str  # name of the constant in the scaler
    field: str  # name of the constant in `LossScaleRule`
    convert: Converter
    decode: Callable[[Any], Any] = lambda value: value  # converts the scaler's value to the rule's value
    encode: Callable[[Any], Any] = lambda value: value  # converts the rule's value to the scaler's value


class Entry(NamedTuple):
    """Entry of a scaler's state."""

    convert: Converter
    encode: Callable[[LossScaleState, LossScaleRule], Any]  # converts a state in Python numbers, and its rule, to the entry


@dataclass(frozen=True)
class Format:
    """Format of a published scaler."""

    name: str  # name of the format and of the scaler's preset
    scale: str  # key of the scale
    state: Mapping[str, Entry]  # entries of the state, by key
    read: Callable[[Entries, LossScaleRule], tuple[int, int]]  # returns `good_steps` and `bad_steps` of the state
    taken: str  # instructions for loading the entries into the published scaler
    saved: tuple[Constant, ...] = ()  # constants that the scaler saves with its state
    unsaved: tuple[Constant, ...] = ()  # constructor arguments that the scaler does not save; a mapping may contain them
    reciprocal: Callable[[float], float] | None = None  # computes the backoff factor if the scaler has only a growth factor
    beside: tuple[str, ...] = ()  # patterns of other keys that may occur in the same mapping

    @property
    def required(self) -> tuple[str, ...]:
        """Return the keys that a mapping must have."""
        return (*self.state, *(constant.key for constant in self.saved))

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the keys of the constructor arguments that the scaler does not save."""
        return tuple(constant.key for constant in self.unsaved)

    def load(self, mapping: Mapping[str, Any], rule: LossScaleRule | None) -> Checkpoint:
        """Return the checkpoint that is stored in *mapping*, which has the keys of this format."""
        constants = [constant for constant in (*self.saved, *self.unsaved) if constant.key in mapping]
        converters = {key: entry.convert for key, entry in self.state.items()}
        converters |= {constant.key: constant.convert for constant in constants}
        entries = _converted(self.name, converters, mapping)
        fields = {constant.field: constant.decode(entries[constant.key]) for constant in constants}
        assumed: dict[str, Any] = {}
        if rule is None:
            rule = self._rule(fields, entries[self.scale])
            assumed = {constant.field: getattr(rule, constant.field) for constant in self.unsaved if constant not in constants}
        else:
            _check_agreement(self.name, rule, fields)
        try:
            state = LossScaleState(entries[self.scale], *self.read(entries, rule))
            check_reachable(rule, state)
        except ValueError as problem:
            raise ValueError(f"the mapping must contain a state of {self.name}: {problem}") from problem
        ignored = tuple(key for key in mapping if key not in converters)
        return Checkpoint(rule, arrays_of(rule, state), assumed, ignored=ignored)

    def fitted(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a rule and a state that this format can store, as close to *checkpoint* as possible."""
        source, state = canonical(checkpoint)
        next_scale = state.scale if state.pending_scale is None else state.pending_scale
        scale = _rounded(next_scale, PRESETS[self.name].rule().dtype)
        fields = {}
        for constant in (*self.saved, *self.unsaved):
            try:
                value = constant.convert(constant.encode(getattr(source, constant.field)), constant.key)
                fields[constant.field] = constant.decode(value)
            except (TypeError, ValueError):
                continue  # the scaler cannot hold this value, so keep the preset's value
        rule = self._rule(fields, scale)
        good_steps = min(max(state.good_steps, rule.initial_good_steps), rule.growth_interval - 1)
        bad_steps = min(state.bad_steps, rule.hysteresis - 1)
        if good_steps > rule.initial_good_steps and "finite" in rule.reset_bad_steps_on:
            bad_steps = 0  # a finite step has reset it
        return Checkpoint(rule, arrays_of(rule, LossScaleState(scale, good_steps, bad_steps)))

    def entries(self, checkpoint: Checkpoint) -> Entries:
        """Return the entries that the published scaler saves if it has the rule and the state of *checkpoint*."""
        state = numbers_of(checkpoint.state)
        entries = {key: entry.encode(state, checkpoint.rule) for key, entry in self.state.items()}
        return entries | _encoded(self.saved, checkpoint.rule)

    def settings_of(self, rule: LossScaleRule) -> Entries:
        """Return the constructor arguments that make the published scaler run *rule*, except arguments that it saves."""
        return _encoded(self.unsaved, rule)

    def _rule(self, fields: Mapping[str, Any], scale: float) -> LossScaleRule:
        """Return the preset's rule with *fields* replaced, and with *scale*, clamped to the bounds, as its initial scale."""
        preset = PRESETS[self.name].rule()
        if self.reciprocal is not None and "growth_factor" in fields:
            fields = {**fields, "backoff_factor": self.reciprocal(fields["growth_factor"])}
        low = fields.get("min_scale", preset.min_scale) or 0.0
        high = math.inf if preset.max_scale is None else preset.max_scale
        return replace(preset, **fields, init_scale=min(max(scale, low), high))


def _converted(name: str, converters: Mapping[str, Converter], mapping: Mapping[str, Any]) -> Entries:
    """Return the entries as Python values. A single error lists all invalid entries."""
    entries, problems = {}, []
    for key, convert in converters.items():
        try:
            entries[key] = convert(mapping[key], key)
        except (TypeError, ValueError) as problem:
            problems.append(str(problem))
    if problems:
        raise ValueError(f"the mapping must contain a state of {name}: {'; '.join(problems)}")
    return entries


def _check_agreement(name: str, rule: LossScaleRule, fields: Mapping[str, Any]) -> None:
    """Raise a ValueError unless *rule* has the values *fields*, which come from the mapping and the settings."""
    problems = [
        f"{field} is {getattr(rule, field)!r} in the rule, but {value!r} in the mapping or settings"
        for field, value in fields.items()
        if getattr(rule, field) != value
    ]
    if problems:
        raise ValueError(f"the rule must agree with the mapping and settings of {name}: {'; '.join(problems)}")


def _encoded(constants: tuple[Constant, ...], rule: LossScaleRule) -> Entries:
    return {constant.key: constant.encode(getattr(rule, constant.field)) for constant in constants}


def _rounded(scale: float, dtype: str) -> float:
    """Round *scale* to *dtype*; raise an error if the result is zero or infinite."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.asarray(scale, dtype))
    if not 0 < rounded < math.inf:
        raise ValueError(f"the scale must be positive and finite in {dtype}, the dtype of the target's scale, got {scale!r}")
    return rounded
