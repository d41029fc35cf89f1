"""
Script that runs in one environment: compares the subjects of drivers with their presets, and writes the rows as JSON.

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
import trajectories
from environments.published import version_of
from subject import Setting, Subject
from trajectories import COUNTERS, Trajectories

from ampscale import presets

STEPS = 10


def main(out: str, *drivers: str) -> None:
    """Run the drivers one after the other. A driver that cannot run gives a row with its error."""
    rows = [row for driver in drivers for row in _rows_of(driver)]
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


def _rows_of(driver: str) -> list[dict[str, Any]]:
    try:
        subjects = importlib.import_module(f"drivers.{driver}").SUBJECTS
    except Exception as error:  # noqa: BLE001 - an import can raise any exception, which the row reports
        traceback.print_exception(error)
        return [{"driver": driver, **_environment(), "error": _message(error)}]
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
    except Exception as error:  # noqa: BLE001 - a step can raise any exception, too
        traceback.print_exception(error)
        row["error"] = _message(error)
    return row | {"seconds": round(time.perf_counter() - started, 2)}


def _compared(subject: Subject, setting: Setting) -> dict[str, Any]:
    rule = getattr(presets, subject.preset)(**setting.values)
    patterns = trajectories.patterns(STEPS)
    published = trajectories.of_object(subject, setting.values, STEPS)
    result = _comparison(patterns, published, trajectories.of_rule(rule, patterns))
    if not setting.values:  # the defaults, whose growth interval is longer than the patterns
        window = np.arange(rule.growth_interval + 2) <= rule.growth_interval
        published = trajectories.of_object_along(subject, {}, window)
        result["window"] = _comparison(window[None], published, trajectories.of_rule(rule, window[None]))
    return result


def _comparison(patterns: np.ndarray, published: Trajectories, ours: Trajectories) -> dict[str, Any]:
    differs = trajectories.differing(published, ours)
    mismatching = differs.any(axis=1)
    return {
        "compared": ["scale"] + [name for name in COUNTERS if getattr(published, name) is not None],
        "patterns": len(differs),
        "steps": differs.shape[1],
        "raising": int(published.raised.any(axis=1).sum()),
        "scales": len(np.unique(published.scale[~published.raised])),
        "mismatching": int(mismatching.sum()),
        "first": _first(patterns, differs, published, ours) if mismatching.any() else None,
    }


def _first(patterns: np.ndarray, differs: np.ndarray, published: Trajectories, ours: Trajectories) -> dict[str, Any]:
    """Return the earliest difference: the pattern up to its step, and both implementations' states after this step."""
    step = int(np.flatnonzero(differs.any(axis=0))[0])
    pattern = int(np.flatnonzero(differs[:, step])[0])
    steps = patterns[pattern, : step + 1]
    return {
        "pattern": "".join("." if finite else "x" for finite in steps),
        "published": _state(published, pattern, step),
        "ampscale": _state(ours, pattern, step),
    }


def _state(states: Trajectories, pattern: int, step: int) -> dict[str, Any]:
    if states.raised[pattern, step]:
        return {"raised": True}
    counts = {name: int(column[pattern, step]) for name in COUNTERS if (column := getattr(states, name)) is not None}
    return {"scale": repr(float(states.scale[pattern, step])), **counts}


def _message(error: Exception) -> str:
    """Return the last line of the traceback."""
    return traceback.format_exception_only(error)[-1].strip()


def _environment() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__}


if __name__ == "__main__":
    main(*sys.argv[1:])
