"""
Format of ampscale itself: JSON that can store any rule and any state exactly.

    {"format": "ampscale.scaler", "version": 1, "rule": {...}, "state": {"scale": "0x1p+16", "good_steps": 7, "bad_steps": 0}}

Scales are hexadecimal strings, so that no JSON reader rounds them.
"""

import json
from collections.abc import Mapping
from typing import Any

from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule
from ...parsing import excerpt, json_text
from ..state import Checkpoint, arrays_of, check_reachable, numbers_of
from .entries import Converter, count, scale

NAME, VERSION = "ampscale.scaler", 1


class AmpscaleFormat:
    """Format of ampscale itself, with the attributes and methods of `Format` that other modules use."""

    name = "ampscale"
    taken = 'call checkpoints.load("ampscale", entries)'
    required = ("format", "version", "rule", "state")
    settings: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def load(self, mapping: Mapping[str, Any], rule: LossScaleRule | None) -> Checkpoint:
        """Return the checkpoint that is stored in *mapping*, which has the keys of this format."""
        name, version = mapping["format"], mapping["version"]
        if type(name) is not str or type(version) is not int or (name, version) != (NAME, VERSION):
            expected = f"format {NAME!r} and version {VERSION}"
            raise ValueError(f"the mapping must have {expected}, got {excerpt(name)} and {excerpt(version)}")
        try:
            stored = LossScaleRule.from_json(json_text(mapping["rule"]))
        except (TypeError, ValueError) as problem:
            raise ValueError(f"rule: {problem}") from problem
        if rule not in (None, stored):
            raise ValueError(f"the rule must agree with the saved {stored!r}, got {rule!r}")
        state = _state(stored, mapping["state"])
        check_reachable(stored, state)
        return Checkpoint(stored, arrays_of(stored, state))

    def fitted(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the rule and the state of *checkpoint* unchanged, since this format can hold any rule and any state."""
        return Checkpoint(checkpoint.rule, checkpoint.state)

    def entries(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the entries that store *checkpoint*."""
        numbers = numbers_of(checkpoint.state)._asdict()
        state = {name: value.hex() if isinstance(value, float) else value for name, value in numbers.items() if value is not None}
        return {"format": NAME, "version": VERSION, "rule": json.loads(checkpoint.rule.to_json()), "state": state}

    def settings_of(self, rule: LossScaleRule) -> dict[str, Any]:
        """Return no settings, since the entries contain the rule."""
        return {}


def _state(rule: LossScaleRule, members: Any) -> LossScaleState:
    """Return the state in Python numbers. *members* must have exactly the fields of a state of *rule*."""
    converters: dict[str, Converter] = {"scale": _hex(rule), "good_steps": count(-(2**31)), "bad_steps": count()}
    if rule.overflow_tolerance is not None:
        converters["window_steps"] = count()
    if rule.delayed_update:
        converters["pending_scale"] = _hex(rule)
    if not isinstance(members, Mapping) or set(members) != set(converters):
        raise ValueError(f"state must have the members {list(converters)}, got {excerpt(members)}")
    try:
        return LossScaleState(**{name: convert(members[name], f"state.{name}") for name, convert in converters.items()})
    except TypeError as problem:
        raise ValueError(str(problem)) from problem


def _hex(rule: LossScaleRule) -> Converter:
    """Return a converter from a hexadecimal string to a scale in the dtype of *rule*."""

    def convert(value: Any, key: str) -> Any:
        try:
            return scale(rule.dtype)(float.fromhex(value), key)
        except (TypeError, OverflowError, ValueError) as problem:
            expected = f"a positive, finite {rule.dtype} number in hexadecimal, as a str"
            raise ValueError(f"{key} must be {expected}, got {excerpt(value)}") from problem

    return convert
