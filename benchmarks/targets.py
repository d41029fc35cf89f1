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
    """Upper bound of the ratio of contender *of* to *over*, or of the value of *of* if *over* is None, in all rows that match."""

    rows: str  # pattern of the ids of rows
    over: str | None
    at_most: float
    description: str
    of: str = "ampscale"


WITHOUT_NUMBA, SCALER = "ampscale, without numba", "ampscale, GradScaler"
CHECK, NORM = "unscale+check/", "unscale+check+norm/"
AVX2_FACTOR = 1.3  # of the bounds of 16-bit rows, for processors without instructions beyond AVX2
SIXTEEN_BITS = (
    (f"{CHECK}float16/100x1M", 0.95, "float16 unscale + check vs. torch's kernel"),
    (f"{NORM}float16/100x1M", 0.35, "float16 unscale + check + norm vs. torch's kernel and foreach norm"),
    (f"{CHECK}bfloat16/100x1M", 0.75, "bfloat16 unscale + check vs. torch's kernel"),
    (f"{NORM}bfloat16/100x1M", 1.0, "bfloat16 unscale + check + norm vs. torch's kernel and foreach norm"),
)
UNCOMPILED = (  # rows that also have a target without numba
    (f"{CHECK}float32/*0x1M", BASELINE, 2.0, "float32 unscale + check vs. in-place multiply"),
    (f"{NORM}float32/*0x1M", BASELINE, 4.0, "float32 unscale + check + norm vs. in-place multiply"),
    (f"{CHECK}float16/100x1M", "torch kernel", 12.0, "float16 unscale + check vs. torch's kernel"),
)
TARGETS = (
    Target(f"numpy/{CHECK}float32/*0x1M", BASELINE, 1.10, "float32 unscale + check vs. in-place multiply"),
    Target(f"numpy/{NORM}float32/*0x1M", BASELINE, 1.10, "float32 unscale + check + norm vs. in-place multiply"),
    Target("numpy/unscale+check*/float32/*/scale49", BASELINE, 1.10, "float32, divided by 49, vs. in-place multiply"),
    Target(
        f"numpy/{NORM}float32/*0x1M", "torch kernel", 0.60, "float32 unscale + check + norm vs. torch's kernel and foreach norm"
    ),
    *(Target(f"numpy/{rows}", "torch kernel", at_most, description) for rows, at_most, description in SIXTEEN_BITS),
    Target(f"numpy/{NORM}float64/25x1M", BASELINE, 1.15, "float64 unscale + check + norm vs. in-place multiply"),
    Target(f"numpy/{NORM}complex64/25x1M", BASELINE, 1.15, "complex64 unscale + check + norm vs. in-place multiply"),
    Target(f"numpy/{NORM}float32/10000x1000", "torch kernel", 0.3, "10,000 arrays vs. torch's kernel and foreach norm"),
    Target("numpy/clip/*", "torch clip_grad_norm_", 0.7, "NumPy: clip_by_global_norm in place vs. clip_grad_norm_"),
    Target("torch/clip/*", "torch clip_grad_norm_", 0.7, "torch: clip_by_global_norm in place vs. clip_grad_norm_"),
    Target(f"torch/{CHECK}float32/*", "torch.amp", 1.0, "torch: GradScaler.unscale_ vs. torch.amp", of=SCALER),
    Target(f"torch/{CHECK}bfloat16/*", "torch.amp", 1.0, "torch: GradScaler.unscale_ vs. torch.amp", of=SCALER),
    Target("step-overhead/100x1000", "torch.amp", 0.7, "scaler's part of an eager step vs. torch.amp"),
    Target("update/numpy", "torch.amp", 0.3, "update of NumPy arrays vs. torch.amp's update()"),
    Target("update/numpy", "torch.amp", 0.3, "update of Python numbers vs. torch.amp's update()", of="ampscale, Python numbers"),
    Target("report/jax/*", BASELINE, 1.02, "traced step that returns its report vs. one that returns the loss only"),
    Target("measure/*/float32/*", BASELINE, 1.10, "float32 unscale + check + statistics vs. unscale + check"),
    Target("first-call/cold", None, 6.0, "first call, which compiles a kernel"),
    Target("first-call/warm", None, 0.5, "first call, which loads a kernel from numba's cache"),
    Target("memory/numpy/*", None, 4 * MIB, "additional memory for 100M values, NumPy"),
    Target("memory/torch/*", None, 4 * MIB, "additional memory for 100M values, torch"),
    Target("growth/elements", None, 1.05, "exponent of time as a function of values, 1M to 300M"),
    Target(
        "avx2/unscale+check*/float32/*", BASELINE, 1.15, "AVX2: float32 unscale + check, and with norm, vs. in-place multiply"
    ),
    *(
        Target(f"avx2/{rows}", "torch kernel", AVX2_FACTOR * at_most, f"AVX2: {description}")
        for rows, at_most, description in SIXTEEN_BITS
    ),
    *(
        Target(f"numpy/{rows}", over, at_most, f"without numba: {description}", of=WITHOUT_NUMBA)
        for rows, over, at_most, description in UNCOMPILED
    ),
)


def evaluate(rows: list[Row], reasons: dict[str, str]) -> list[dict[str, Any]]:
    """Return each target for each of its rows, with the measured value, the verdict and, if it is missed, the reason."""
    results = []
    for target in TARGETS:
        for row in matching_rows(target, rows):
            result = {**asdict(target), "row": row["id"], **verdict(target, row)}
            reason = reasons.get(key(row["id"], target.of, target.over)) if result["verdict"] == MISSED else None
            results.append({**result, "reason": reason})
    return results


def matching_rows(target: Target, rows: list[Row]) -> Iterator[Row]:
    """Yield the rows that match a target."""
    yield from (row for row in rows if fnmatch(row["id"], target.rows))


def compared_contenders(row: str) -> set[str]:
    """Return the names of the contenders that the targets of a row compare; empty for a row without targets."""
    return {name for target in TARGETS if fnmatch(row, target.rows) for name in (target.of, target.over) if name}


def key(row: str, of: str, over: str | None) -> str:
    """Return the key of the reason for a missed target; *row* is the id of its row, or a pattern of ids."""
    return " / ".join(filter(None, [row, of, over]))


def verdict(target: Target, row: Row) -> dict[str, Any]:
    """
    Return the measured value, its spread and the verdict.

    A ratio or a value that exceeds its bound by at most its spread is "within the spread".
    """
    cells = {cell["name"]: cell for cell in row["cells"] if "absent" not in cell}
    if target.of not in cells:
        return {"measured": None, "verdict": OPEN}
    if target.over is None:
        cell = cells[target.of]
        value = cell["median"] if row["unit"] == "s" else cell["value"]
        spread = half_range(cell["quartiles"]) if row["unit"] == "s" else cell.get("error", 0.0)
    else:
        ratio = bounded_ratio(cells, target)
        if ratio is None:
            return {"measured": None, "verdict": OPEN}
        value, spread = ratio["ratio"], half_range(ratio["quartiles"])
    result = MET if value <= target.at_most else EVEN if value - spread <= target.at_most else MISSED
    return {"measured": value, "spread": spread, "verdict": result}


def bounded_ratio(cells: dict[str, Any], target: Target) -> dict[str, Any] | None:
    """Return the ratio that a target bounds; None if the other implementation could not be measured."""
    of = cells[target.of]
    if target.over == BASELINE:
        return of.get("over_baseline")
    over = cells.get(target.over or "")
    return None if over is None else of["over"][target.over]


def half_range(quartiles: list[float]) -> float:
    """Return half the range between the quartiles."""
    return (quartiles[1] - quartiles[0]) / 2


def read_reasons() -> dict[str, str]:
    """Return the reasons for missed targets, by key."""
    entries = tomllib.loads(REASONS.read_text("utf-8")).get("reason", [])
    return {key(entry["row"], entry.get("of", "ampscale"), entry.get("over")): entry["text"] for entry in entries}


def faults(verdicts: list[dict[str, Any]]) -> list[str]:
    """Return an error message for each target that is missed without a reason."""
    return [
        f"{target['row']}: target {target['description']!r} is missed; add a reason to reasons.toml"
        for target in verdicts
        if target["verdict"] == MISSED and not target["reason"]
    ]
