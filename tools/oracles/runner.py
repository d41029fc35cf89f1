"""
Run inside one environment: compares the subjects of some drivers, and writes what came out as JSON.

    python runner.py OUT.json DRIVER...
"""

import importlib
import json
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import walk
from environments.published import version_of
from subject import Setting, Subject

from ampscale import presets

STEPS = 10


def main(out: str, *drivers: str) -> None:
    """Compare, one driver after the other; a driver that cannot run is a row with its error."""
    rows = [row for driver in drivers for row in _rows_of(driver)]
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


def _rows_of(driver: str) -> list[dict[str, Any]]:
    try:
        subjects = importlib.import_module(f"drivers.{driver}").SUBJECTS
    except Exception as error:  # noqa: BLE001 - whatever a package raises on import is the row's text
        return [{"driver": driver, **_environment(), "error": _said(error)}]
    return [_row(driver, subject, setting) for subject in subjects for setting in subject.settings]


def _row(driver: str, subject: Subject, setting: Setting) -> dict[str, Any]:
    started = time.perf_counter()
    row = {
        "driver": driver,
        **_environment(),
        "package": subject.distribution,
        "version": version_of(subject.distribution, subject.unpacked),
        "class": subject.name,
        "how": subject.how,
        "preset": subject.preset,
        "settings": setting.values,
        "reason": setting.reason,
    }
    try:
        row |= _compared(subject, setting)
    except Exception as error:  # noqa: BLE001 - so is whatever an object raises in a step
        row["error"] = _said(error)
    return row | {"seconds": round(time.perf_counter() - started, 2)}


def _compared(subject: Subject, setting: Setting) -> dict[str, Any]:
    rule = getattr(presets, subject.preset)(**setting.values)
    every, published = walk.patterns(STEPS), walk.of_object(subject, setting.values, STEPS)
    found = _found(every, published, walk.of_rule(rule, every))
    if not setting.values:  # its own defaults, of which the window is the longest
        window = np.arange(rule.growth_interval + 2) <= rule.growth_interval
        along = walk.of_object_along(subject, {}, window)
        found |= {"window": _found(window[None], along, walk.of_rule(rule, window[None]))}
    return found


def _found(patterns: np.ndarray, published: walk.Trajectories, ours: walk.Trajectories) -> dict[str, Any]:
    differs = walk.differing(published, ours)
    wrong = differs.any(axis=1)
    return {
        "compared": ["scale"] + [name for name in walk.COUNTERS if getattr(published, name) is not None],
        "patterns": len(differs),
        "steps": differs.shape[1],
        "stopping": int(published.stopped.any(axis=1).sum()),
        "scales": len(np.unique(published.scale[~published.stopped])),
        "mismatching": int(wrong.sum()),
        "first": _first(patterns, differs, published, ours) if wrong.any() else None,
    }


def _first(patterns: np.ndarray, differs: np.ndarray, published: walk.Trajectories, ours: walk.Trajectories) -> dict[str, Any]:
    """The earliest step at which any pattern differs, and what was seen there."""
    step = int(np.flatnonzero(differs.any(axis=0))[0])
    pattern = int(np.flatnonzero(differs[:, step])[0])
    steps = patterns[pattern, : step + 1]
    return {
        "pattern": "".join("." if finite else "x" for finite in steps),
        "published": _shown(published, pattern, step),
        "ampscale": _shown(ours, pattern, step),
    }


def _shown(seen: walk.Trajectories, pattern: int, step: int) -> dict[str, Any]:
    if seen.stopped[pattern, step]:
        return {"stopped": True}
    counts = {name: int(column[pattern, step]) for name in walk.COUNTERS if (column := getattr(seen, name)) is not None}
    return {"scale": repr(float(seen.scale[pattern, step])), **counts}


def _said(error: Exception) -> str:
    """The whole story goes to the log, its last line into the row."""
    traceback.print_exception(error)
    return traceback.format_exception_only(error)[-1].strip()


def _environment() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__}


if __name__ == "__main__":
    main(*sys.argv[1:])
