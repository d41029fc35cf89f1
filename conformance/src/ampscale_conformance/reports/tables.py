"""What many results have in common, written once and shortly; nothing of it is lost."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ampscale import LossScaleRule

DEFAULTS: dict[str, Any] = json.loads(LossScaleRule().to_json())
_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-]\d+")
_LONG = 16  # elements of an array from which on it is told in runs

Runs = list[tuple[int, list[str]]]


class Table:
    """Rows of which each is kept once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, row: Any) -> int:
        """Where it stands."""
        key = json.dumps(row, sort_keys=True)
        if key not in self._places:
            self._places[key] = len(self.rows)
            self.rows.append(row)
        return self._places[key]


def brief(value: Any) -> Any:
    """
    A value of a report with its floats in the fewest hex digits, its rules without defaults, and its long arrays in runs.

    An array of more than 16 elements has `runs` instead of `bits`: see `runs`. What a rule leaves out has the default, as
    MACHINE-rule-json says.
    """
    if isinstance(value, str):
        return short(value)
    if isinstance(value, list):
        return [brief(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "dict" in value:
        return {"dict": {key: brief(item) for key, item in value["dict"].items()}}
    if "growth_interval" in value:
        return {name: constant for name, constant in value.items() if name not in DEFAULTS or constant != DEFAULTS[name]}
    if len(value.get("bits", ())) > _LONG:
        return {"dtype": value["dtype"], "shape": value["shape"], "runs": runs(value["bits"])}
    return {key: brief(item) for key, item in value.items()}


def brief_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call, likewise; without a result that is None, and without `raised` where nothing was."""
    said = {"method": call["method"], "arguments": brief(call["arguments"])}
    if call["result"] is not None:
        said["result"] = brief(call["result"])
    return said | ({"raised": call["raised"]} if call["raised"] else {})


def brief_trajectory(trajectory: Mapping[str, Any]) -> dict[str, Any]:
    """A trajectory whose scales are told in runs."""
    scales = {name: runs([short(scale) for scale in trajectory[name]]) for name in ("wanted", "got")}
    return {"finite": trajectory["finite"], **scales}


def short(text: str) -> str:
    """A float as float.hex() writes it, without zeros at the end: 0x1p+8 for 0x1.0000000000000p+8; any other text as it is."""
    return re.sub(r"\.?0*p", "p", text) if _FLOAT.fullmatch(text) else text


def runs(items: Sequence[str]) -> Runs:
    """Pairs that say, one after the other, how often to write which items; one item or two are repeated."""
    told: Runs = []
    place = 0
    while place < len(items):
        tried = [(_times(items, place, width), width) for width in (1, 2)]
        times, width = max(tried, key=math.prod)
        if times * width > 3:
            told.append((times, list(items[place : place + width])))
        else:
            times, width = 1, 1
            if not told or told[-1][0] > 1:
                told.append((1, []))
            told[-1][1].append(items[place])
        place += times * width
    return told


def _times(items: Sequence[str], place: int, width: int) -> int:
    """How often the next *width* items stand there one after the other."""
    end = place + width
    while end < len(items) and items[end] == items[end - width]:
        end += 1
    return (end - place) // width
