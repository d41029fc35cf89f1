"""
Our own format: any rule and any state of the one machine, as JSON that reads back exactly.

    {"format": "ampscale.scaler", "version": 1, "rule": {...}, "state": {"scale": "0x1p+16", "good_steps": 7, "bad_steps": 0}}

The scales are hexadecimal, so that no reader of JSON rounds them.
"""

import json
from collections.abc import Mapping
from typing import Any

from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule
from ...parsing import excerpt, json_text
from ..state import Checkpoint, arrays_of, check_reachable, numbers_of
from .entries import Count, Kind, Scale

NAME, VERSION = "ampscale.scaler", 1


class Own:
    """What `ampscale` itself saves; it has the methods of `Format`."""

    name = "ampscale"
    taken = 'call checkpoints.load("ampscale", mapping)'
    needed = ("format", "version", "rule", "state")
    settings: tuple[str, ...] = ()

    def strange(self, keys: list[str]) -> list[str]:
        """Those of *keys* that have no place in this format."""
        return [key for key in keys if key not in self.needed]

    def load(self, mapping: Mapping[str, Any], rule: LossScaleRule | None) -> Checkpoint:
        """The checkpoint that *mapping*, which has the keys of this format, says."""
        name, version = mapping["format"], mapping["version"]
        if type(name) is not str or type(version) is not int or (name, version) != (NAME, VERSION):
            wanted = f"format {NAME!r} and version {VERSION}"
            raise ValueError(f"this must be of {wanted}, got {excerpt(name)} and {excerpt(version)}")
        held = _rule(mapping["rule"])
        if rule not in (None, held):
            raise ValueError(f"the rule must agree with what ampscale saved, {held!r}, got {rule!r}")
        state = _state(held, mapping["state"])
        check_reachable(held, state)
        return Checkpoint(held, arrays_of(held, state))

    def fitted(self, checkpoint: Checkpoint) -> Checkpoint:
        """*checkpoint*, which this format can hold whatever it is."""
        return Checkpoint(checkpoint.rule, checkpoint.state)

    def entries(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What is saved where *checkpoint* stands."""
        numbers = numbers_of(checkpoint.state)._asdict()
        state = {name: value.hex() if isinstance(value, float) else value for name, value in numbers.items() if value is not None}
        return {"format": NAME, "version": VERSION, "rule": json.loads(checkpoint.rule.to_json()), "state": state}

    def settings_of(self, rule: LossScaleRule) -> dict[str, Any]:
        """Nothing: all is in the file."""
        return {}


def _rule(members: Any) -> LossScaleRule:
    try:
        return LossScaleRule.from_json(json_text(members))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"rule: {problem}") from problem


def _state(rule: LossScaleRule, members: Any) -> LossScaleState:
    """The state in Python numbers, with the members that a state of *rule* has."""
    kinds: dict[str, Kind] = {"scale": _hex(rule), "good_steps": Count(-(2**31)), "bad_steps": Count()}
    kinds |= {"window_steps": Count()} if rule.overflow_tolerance is not None else {}
    kinds |= {"pending_scale": _hex(rule)} if rule.delayed_update else {}
    if not isinstance(members, Mapping) or set(members) != set(kinds):
        raise ValueError(f"state must have the members {list(kinds)}, got {excerpt(members)}")
    try:
        return LossScaleState(**{name: kind(members[name], f"state.{name}") for name, kind in kinds.items()})
    except TypeError as problem:
        raise ValueError(str(problem)) from problem


def _hex(rule: LossScaleRule) -> Kind:
    scale = Scale(wide=rule.dtype == "float64")

    def read(value: Any, key: str) -> float:
        try:
            return scale(float.fromhex(value), key)
        except (TypeError, OverflowError, ValueError) as problem:
            wanted = "a positive, finite number in hexadecimal, as a str"
            raise ValueError(f"{key} must be {wanted}, got {excerpt(value)}") from problem

    return read
