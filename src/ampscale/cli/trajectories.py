"""Output of `simulate` and `compare`: trajectories as JSON and as a picture."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..core.rule import LossScaleRule
from ..diagnostics.records import encoded
from ..simulation.simulate import Trajectory
from .extras import require


def document(name: str, rule: LossScaleRule, trajectory: Trajectory) -> dict[str, Any]:
    """Return a rule and its trajectory as JSON-serializable values. An infinite scale is the string "inf"."""
    trace = trace_text(trajectory.finite)
    scales = trajectory.scales.tolist()
    return {
        "name": name,
        "rule": asdict(rule),
        "steps": trajectory.steps,
        "raised_at": trajectory.raised_at,
        "final_scale": encoded(scales[-1]),
        "growths": trajectory.growths,
        "backoffs": trajectory.backoffs,
        "overflows": trajectory.overflows,
        # `finite` lacks the step at which the published scaler raises an error, which is an overflow.
        "trace": trace if trajectory.raised_at is None else trace + "x",
        "scales": list(map(encoded, scales)) if np.isinf(trajectory.scales).any() else scales,
        "good_steps": trajectory.good_steps.tolist(),
        "bad_steps": trajectory.bad_steps.tolist(),
    }


def trace_text(finite: np.ndarray) -> str:
    """Return finite flags in the format of --trace: "." for a finite step, "x" for an overflow."""
    return np.where(finite, b".", b"x").tobytes().decode()


def to_json(members: Mapping[str, Any]) -> str:
    """Return a JSON object with a line for each member, and for each object in a list of objects."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_lines(value)}" for key, value in members.items()) + "\n}"


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n    " + ",\n    ".join(map(_lines, value)) + "\n  ]"
    return json.dumps(value, allow_nan=False)


def draw(trajectories: Mapping[str, Trajectory], divergences: Sequence[int], path: Path | None) -> None:
    """Plot the trajectories to *path* as `scale_plot.draw` does; do nothing if *path* is None."""
    if path is not None:
        require("matplotlib")
        from .scale_plot import draw as plot

        plot(trajectories, divergences, path)
