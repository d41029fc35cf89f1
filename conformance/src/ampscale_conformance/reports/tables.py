"""Compact encoding of data that many results share. It is lossless."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ampscale import LossScaleRule

DEFAULTS: dict[str, Any] = json.loads(LossScaleRule().to_json())
_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-]\d+")
_LONG = 16  # longer arrays are run-length encoded
_WIDEST = 8  # items; the longest pattern whose repetitions are a run
Runs = list[tuple[int, list[str]]]


class Table:
    """Table of distinct rows."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._indices: dict[str, int] = {}

    def index(self, row: Any) -> int:
        """Return the index of a row; add the row if it is new."""
        key = json.dumps(row, sort_keys=True)
        if key not in self._indices:
            self._indices[key] = len(self.rows)
            self.rows.append(row)
        return self._indices[key]


def brief(value: Any) -> Any:
    """
    Return a value of a report with shortened floats, rules without defaults, and long arrays run-length encoded.

    An array of more than 16 elements has `runs` instead of `bits`; see `runs`. Missing fields of a rule have the defaults of
    MACHINE-rule-json.
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
    """Return a call with its values in the form of `brief`, without a result of None and without an empty `raised`."""
    members = {"method": call["method"], "arguments": brief(call["arguments"])}
    if call["result"] is not None:
        members["result"] = brief(call["result"])
    return members | ({"raised": call["raised"]} if call["raised"] else {})


def brief_trajectory(trajectory: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trajectory with run-length encoded scales."""
    scales = {name: runs([short(scale) for scale in trajectory[name]]) for name in ("expected", "got")}
    return {"finite": trajectory["finite"], **scales}


def short(text: str) -> str:
    """Return a float in the format of float.hex() without trailing zeros, such as 0x1p+8; return other text unchanged."""
    return re.sub(r"\.?0*p", "p", text) if _FLOAT.fullmatch(text) else text


def runs(items: Sequence[str]) -> Runs:
    """Run-length encode items as pairs (repetitions, items). A pattern of up to eight items can be repeated."""
    encoded: Runs = []
    index = 0
    while index < len(items):
        times, width = max(_repeats(items, index), key=math.prod, default=(1, 1))
        if times > 1:
            encoded.append((times, list(items[index : index + width])))
        else:
            if not encoded or encoded[-1][0] > 1:
                encoded.append((1, []))
            encoded[-1][1].append(items[index])
        index += times * width
    return encoded


def _repeats(items: Sequence[str], index: int) -> Iterator[tuple[int, int]]:
    """Yield (repetitions, width) of each pattern that is repeated from *index* on and covers more than three items."""
    for width in range(1, _WIDEST + 1):
        times = _repetitions(items, index, width)
        if times > 1 and times * width > 3:
            yield times, width


def _repetitions(items: Sequence[str], index: int, width: int) -> int:
    """Return how often the *width* items at an index occur in a row."""
    end = index + width
    while end < len(items) and items[end] == items[end - width]:
        end += 1
    return (end - index) // width
