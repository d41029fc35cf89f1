"""How `simulate` and `compare` say what happened: scales in words, trajectories as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.rule import LossScaleRule
from ..simulation.simulate import Trajectory
from .extras import need


def described(name: str, rule: LossScaleRule, trajectory: Trajectory) -> dict[str, Any]:
    """A rule and its trajectory, for JSON. Infinity, which JSON has not, is "inf"."""
    flags = np.where(trajectory.finite, ord("."), ord("x")).astype(np.uint8).tobytes().decode()
    return {
        "name": name,
        "rule": json.loads(rule.to_json()),
        "steps": trajectory.steps,
        "raised_at": trajectory.raised_at,
        "final_scale": _numbers(trajectory.scales[-1:])[0],
        "growths": trajectory.growths,
        "backoffs": trajectory.backoffs,
        "overflows": trajectory.overflows,
        "trace": flags if trajectory.raised_at is None else flags + "x",
        "scales": _numbers(trajectory.scales),
        "good_steps": trajectory.good_steps.tolist(),
        "bad_steps": trajectory.bad_steps.tolist(),
    }


def _numbers(scales: np.ndarray) -> list[float | str]:
    listed = scales.tolist()
    return ["inf" if scale == math.inf else scale for scale in listed] if np.isinf(scales).any() else listed


def as_json(members: Mapping[str, Any]) -> str:
    """A JSON object with a line for each of its members, and for each object in a list of them."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_written(value)}" for key, value in members.items()) + "\n}"


def _written(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n    " + ",\n    ".join(map(_written, value)) + "\n  ]"
    return json.dumps(value, allow_nan=False)


def drawn(trajectories: Mapping[str, Trajectory], divergences: Sequence[int], path: Path | None) -> None:
    """Draws where there is a path to draw into: see `curves.draw`."""
    if path is not None:
        need("matplotlib")
        from .scale_plot import draw

        draw(trajectories, divergences, path)
