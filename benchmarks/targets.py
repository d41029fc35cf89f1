"""
What the rows are to reach, as data, and whether they do.

Each target is a ratio of medians of one row, or a value; a pattern binds several rows. A target that is missed has its reason in
reasons.toml, which says why and what was tried; without one the run fails.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

REASONS = Path(__file__).with_name("reasons.toml")
MIB = 2**20
FLOOR = "floor"
MET, EVEN, MISSED, OPEN = "met", "within the spread", "missed", "not measured"

Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """*of* takes at most so many times what *over* takes, in each row whose id matches; a value, where *over* is None."""

    rows: str
    over: str | None
    at_most: float
    words: str
    of: str = "ampscale"


TARGETS = (
    Target("numpy/unscale+check/float32/100x1M", FLOOR, 1.15, "NumPy float32 unscale + check, over the in-place multiply"),
    Target("numpy/unscale+check+norm/float32/100x1M", FLOOR, 1.25, "the same with the global norm in the same pass"),
    Target("numpy/unscale+check+norm/float32/100x1M", "torch.amp", 0.75, "NumPy float32 + norm, over torch's unscale_ and norm"),
    Target("numpy/unscale+check/float16/100x1M", "torch kernel", 4.0, "NumPy float16 unscale + check, over torch's kernel"),
    Target("numpy/unscale+check/float16/100x1M", "naive", 1 / 6, "the same, over naive NumPy"),
    Target("torch/unscale+check/float32/*", "torch.amp", 1.0, "torch: our unscale_, over torch.amp's", of="ampscale, GradScaler"),
    Target(
        "torch/unscale+check/bfloat16/*", "torch.amp", 1.0, "torch: our unscale_, over torch.amp's", of="ampscale, GradScaler"
    ),
    Target("torch/unscale+check/float32/*", "torch.amp", 1.0, "torch: the verb, over torch.amp's unscale_"),
    Target("torch/unscale+check/bfloat16/*", "torch.amp", 1.0, "torch: the verb, over torch.amp's unscale_"),
    Target("step-overhead/100x1000", "torch.amp", 0.7, "a scaler's part of an eager step, over torch.amp's"),
    Target("update/numpy", "torch.amp", 0.3, "an update of the scale on NumPy's scalars, over torch's update()"),
    Target("update/numpy", "torch.amp", 0.3, "an update of the scale on Python numbers, over it", of="ampscale, Python numbers"),
    Target("numpy/unscale+check+norm/float32/10000x1000", "ampscale, one array", 5.0, "10,000 arrays, over one of the same size"),
    Target(
        "numpy/unscale+check+norm/float32/10000x1000", "torch kernel", 0.8, "10,000 arrays, over torch's kernel and foreach norm"
    ),
    Target("memory/numpy/*/float32", None, 4 * MIB, "extra memory for 400 MB, NumPy"),
    Target("memory/torch/*/float32", None, 4 * MIB, "extra memory for 400 MB, torch"),
    Target("growth/elements", None, 1.05, "time over values, 1M to 300M: the exponent"),
)


def judged(rows: list[Row], reasons: dict[str, str]) -> list[dict[str, Any]]:
    """Each target on each of its rows: what was measured, the verdict, and the reason of one that is missed."""
    return [
        {**asdict(target), "row": row["id"], **verdict(target, row), "reason": reasons.get(key(target, row["id"]))}
        for target in TARGETS
        for row in bound(target, rows)
    ]


def bound(target: Target, rows: list[Row]) -> Iterator[Row]:
    """The rows of a target."""
    yield from (row for row in rows if fnmatch(row["id"], target.rows))


def thorough(row: str) -> bool:
    """Whether a row is judged, and so measured more thoroughly."""
    return any(fnmatch(row, target.rows) for target in TARGETS)


def key(target: Target, row: str) -> str:
    """What a reason is found under."""
    return " / ".join(filter(None, [row, target.of, target.over]))


def verdict(target: Target, row: Row) -> dict[str, Any]:
    """
    What was measured, with its spread, and what it means.

    A ratio that is above its bound by less than half its interquartile range is not told apart from the bound.
    """
    found = {cell["name"]: cell for cell in row["cells"] if "absent" not in cell}
    if target.of not in found:
        return {"measured": None, "verdict": OPEN}
    if target.over is None:
        value, spread = found[target.of]["value"], found[target.of].get("error", 0.0)
    else:
        ratio = quoted(found, target)
        if ratio is None:
            return {"measured": None, "verdict": OPEN}
        value, spread = ratio["ratio"], half(ratio["quartiles"])
    told = MET if value <= target.at_most else EVEN if value - spread <= target.at_most else MISSED
    return {"measured": value, "spread": spread, "verdict": told}


def quoted(cells: dict[str, Any], target: Target) -> dict[str, Any] | None:
    """The ratio in the row that a target speaks of; None where the other one could not be measured."""
    of = cells[target.of]
    if target.over == FLOOR:
        return of.get("over_floor")
    over = cells.get(target.over or "")
    return None if over is None else of["over"][target.over]


def half(quartiles: list[float]) -> float:
    """Half the range between the quartiles."""
    return (quartiles[1] - quartiles[0]) / 2


def read_reasons() -> dict[str, str]:
    """Why, by the key of what is missed."""
    entries = tomllib.loads(REASONS.read_text("utf-8")).get("reason", [])
    return {" / ".join(filter(None, [one["row"], one.get("of", "ampscale"), one.get("over")])): one["text"] for one in entries}


def faults(verdicts: list[dict[str, Any]]) -> list[str]:
    """What makes a run fail: each target that is missed without a reason."""
    return [
        f"{one['row']}: {one['words']} is missed, and reasons.toml does not say why"
        for one in verdicts
        if one["verdict"] == MISSED and not one["reason"]
    ]


def is_of_a_target(name: str) -> bool:
    """Whether a reason speaks of a target."""
    return any(fnmatch(name, key(target, target.rows)) for target in TARGETS)
