"""
Performance targets, and the evaluation of rows against them.

A target bounds a ratio of medians, or a value, of all rows that match a pattern. If a target is missed, reasons.toml must state
why and what was tried; otherwise the run fails.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

REASONS = Path(__file__).with_name("reasons.toml")
MIB = 2**20
BASELINE = "baseline"
MET, EVEN, MISSED, OPEN = "met", "within the spread", "missed", "not measured"

Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """Upper bound of the ratio of contender *of* to *over* in all rows that match; of the value of *of* if *over* is None."""

    rows: str
    over: str | None
    at_most: float
    description: str
    of: str = "ampscale"


TARGETS = (
    Target("numpy/unscale+check/float32/100x1M", BASELINE, 1.15, "NumPy float32 unscale + check vs. in-place multiply"),
    Target(
        "numpy/unscale+check+norm/float32/100x1M", BASELINE, 1.25, "NumPy float32 unscale + check + norm vs. in-place multiply"
    ),
    Target(
        "numpy/unscale+check+norm/float32/100x1M",
        "torch.amp",
        0.75,
        "NumPy float32 unscale + check + norm vs. torch.amp and norm",
    ),
    Target("numpy/unscale+check/float16/100x1M", "torch kernel", 4.0, "NumPy float16 unscale + check vs. torch's kernel"),
    Target("numpy/unscale+check/float16/100x1M", "naive", 1 / 6, "NumPy float16 unscale + check vs. naive NumPy"),
    Target(
        "torch/unscale+check/float32/*", "torch.amp", 1.0, "torch: GradScaler.unscale_ vs. torch.amp", of="ampscale, GradScaler"
    ),
    Target(
        "torch/unscale+check/bfloat16/*", "torch.amp", 1.0, "torch: GradScaler.unscale_ vs. torch.amp", of="ampscale, GradScaler"
    ),
    Target("torch/unscale+check/float32/*", "torch.amp", 1.0, "torch: unscale_and_check vs. torch.amp"),
    Target("torch/unscale+check/bfloat16/*", "torch.amp", 1.0, "torch: unscale_and_check vs. torch.amp"),
    Target("step-overhead/100x1000", "torch.amp", 0.7, "scaler's part of an eager step vs. torch.amp"),
    Target("update/numpy", "torch.amp", 0.3, "update of NumPy arrays vs. torch.amp's update()"),
    Target("update/numpy", "torch.amp", 0.3, "update of Python numbers vs. torch.amp's update()", of="ampscale, Python numbers"),
    Target(
        "numpy/unscale+check+norm/float32/10000x1000",
        "ampscale, one array",
        5.0,
        "10,000 arrays vs. one array of the same total size",
    ),
    Target(
        "numpy/unscale+check+norm/float32/10000x1000", "torch kernel", 0.8, "10,000 arrays vs. torch's kernel and foreach norm"
    ),
    Target("memory/numpy/*/float32", None, 4 * MIB, "additional memory for 400 MB, NumPy"),
    Target("memory/torch/*/float32", None, 4 * MIB, "additional memory for 400 MB, torch"),
    Target("growth/elements", None, 1.05, "exponent of time as a function of values, 1M to 300M"),
)


def judged(rows: list[Row], reasons: dict[str, str]) -> list[dict[str, Any]]:
    """Return each target for each of its rows, with the measured value, the verdict and the reason if one is given."""
    return [
        {**asdict(target), "row": row["id"], **verdict(target, row), "reason": reasons.get(key(target, row["id"]))}
        for target in TARGETS
        for row in bound(target, rows)
    ]


def bound(target: Target, rows: list[Row]) -> Iterator[Row]:
    """Yield the rows that match a target."""
    yield from (row for row in rows if fnmatch(row["id"], target.rows))


def thorough(row: str) -> bool:
    """Return True if a target applies to the row, which is then measured with more samples."""
    return any(fnmatch(row, target.rows) for target in TARGETS)


def key(target: Target, row: str) -> str:
    """Return the key of a reason in reasons.toml."""
    return " / ".join(filter(None, [row, target.of, target.over]))


def verdict(target: Target, row: Row) -> dict[str, Any]:
    """
    Return the measured value, its spread and the verdict.

    A ratio that exceeds its bound by at most half its interquartile range is "within the spread".
    """
    cells = {cell["name"]: cell for cell in row["cells"] if "absent" not in cell}
    if target.of not in cells:
        return {"measured": None, "verdict": OPEN}
    if target.over is None:
        value, spread = cells[target.of]["value"], cells[target.of].get("error", 0.0)
    else:
        ratio = bounded_ratio(cells, target)
        if ratio is None:
            return {"measured": None, "verdict": OPEN}
        value, spread = ratio["ratio"], half(ratio["quartiles"])
    result = MET if value <= target.at_most else EVEN if value - spread <= target.at_most else MISSED
    return {"measured": value, "spread": spread, "verdict": result}


def bounded_ratio(cells: dict[str, Any], target: Target) -> dict[str, Any] | None:
    """Return the ratio that a target bounds; None if the other implementation could not be measured."""
    of = cells[target.of]
    if target.over == BASELINE:
        return of.get("over_baseline")
    over = cells.get(target.over or "")
    return None if over is None else of["over"][target.over]


def half(quartiles: list[float]) -> float:
    """Return half the range between the quartiles."""
    return (quartiles[1] - quartiles[0]) / 2


def read_reasons() -> dict[str, str]:
    """Return the reasons for missed targets, by key."""
    entries = tomllib.loads(REASONS.read_text("utf-8")).get("reason", [])
    return {" / ".join(filter(None, [row["row"], row.get("of", "ampscale"), row.get("over")])): row["text"] for row in entries}


def faults(verdicts: list[dict[str, Any]]) -> list[str]:
    """Return an error message for each target that is missed without a reason."""
    return [
        f"{target['row']}: target {target['description']!r} is missed; add a reason to reasons.toml"
        for target in verdicts
        if target["verdict"] == MISSED and not target["reason"]
    ]


def is_of_a_target(name: str) -> bool:
    """Return True if a reason's key belongs to a target."""
    return any(fnmatch(name, key(target, target.rows)) for target in TARGETS)
