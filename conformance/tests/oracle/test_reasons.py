"""Tests of the clauses that the oracle names as the reason for each step."""

import re
from pathlib import Path

from ampscale_conformance import oracle
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.oracle.machine import Constants, trajectory

CLAUSES = [
    ("", {}, ["state"]),
    ("+++", {"growth_interval": 3}, ["growth-window"] * 3),
    (
        "++-+++",
        {"growth_interval": 3},
        ["growth-window", "growth-window", "backoff", "overflow-resets", "overflow-resets", "growth-window"],
    ),
    ("-+", {"growth_interval": 3}, ["backoff", "growth-window"]),
    ("+++++", {"growth_interval": 2}, ["growth-window", "growth-window", "growth-resets", "growth-window", "growth-resets"]),
    ("+++-++", {"growth_interval": 2}, [*["growth-window"] * 2, "growth-resets", "backoff", "overflow-resets", "growth-window"]),
    (
        "++++",
        {"growth_interval": 2, "initial_good_steps": -1},
        ["growth-window", "initial-good-steps", "growth-window", "growth-resets"],
    ),
    ("+", {"growth_interval": 2, "initial_good_steps": 1}, ["initial-good-steps"]),
    ("+", {"growth_interval": 1, "growth_factor": 1.0}, ["growth-window growth-factor"]),
    ("+", {"growth_interval": 1, "max_scale": 9.0}, ["growth-window max-scale"]),
    ("+", {"growth_interval": 1, "init_scale": 2.0**127}, ["growth-window skip-infinite-growth"]),
    (
        "+",
        {"growth_interval": 1, "init_scale": 2.0**127, "skip_infinite_growth": False, "max_scale": 3e38},
        ["growth-window max-scale"],
    ),
    ("++", {"growth_interval": 1, "warmup_growth_factor": 4.0}, ["growth-window warmup-growth-factor"] * 2),
    ("-+", {"growth_interval": 1, "warmup_growth_factor": 4.0, "reset_bad_steps_on": ()}, ["backoff", "growth-window"]),
    ("+", {"growth_interval": 1, "growth_factor": 1.1}, ["growth-window arithmetic"]),
    (
        "+",
        {"growth_interval": 1, "growth_factor": 1.1, "init_scale": 7.0, "float64_factor": True},
        ["growth-window float64-factor"],
    ),
    ("-", {"backoff_factor": 1 / 3, "init_scale": 10.0, "divide_on_backoff": True}, ["backoff divide-on-backoff"]),
    ("-", {"divide_on_backoff": True}, ["backoff"]),
    ("--", {"min_scale": 4.0}, ["backoff", "backoff min-scale"]),
    ("--", {"hysteresis": 2}, ["hysteresis", "backoff hysteresis"]),
    ("----", {"hysteresis": 2}, ["hysteresis", "backoff hysteresis"] * 2),
    ("-+-", {"hysteresis": 2}, ["hysteresis", "growth-window", "hysteresis reset-bad-steps"]),
    (
        "-+-",
        {"hysteresis": 2, "reset_bad_steps_on": ("backoff",)},
        ["hysteresis", "growth-window", "backoff hysteresis reset-bad-steps"],
    ),
    (
        "---",
        {"hysteresis": 2, "reset_bad_steps_on": ()},
        ["hysteresis", "backoff hysteresis", "backoff hysteresis reset-bad-steps"],
    ),
    ("+-", {"overflow_tolerance": 0.6}, ["growth-window", "overflow-tolerance"]),
    ("-", {"overflow_tolerance": 0.6}, ["backoff overflow-tolerance"]),
    (
        "+-",
        {"growth_interval": 1, "min_scale": 8.0, "max_scale": 8.0, "block_at_bounds": True},
        ["block-at-bounds", "block-at-bounds"],
    ),
    (
        "++-+",
        {"growth_interval": 2, "growth_factor": 1.0, "min_scale": 8.0, "block_at_bounds": True},
        ["growth-window", "growth-window growth-factor", "block-at-bounds", "growth-resets"],
    ),
    ("-+", {"min_scale": 8.0, "block_at_bounds": True, "growth_interval": 1}, ["block-at-bounds", "growth-window"]),
    ("+-", {"growth_factor": 1.0, "backoff_factor": 1.0}, ["static", "static"]),
    ("-", {"raise_at_or_below": 4.0}, ["would-raise"]),
    ("+-", {"delayed_update": True, "growth_interval": 1}, ["state delayed-update", "growth-window delayed-update"]),
]


def test_a_step_names_the_clauses_that_decided_it():
    """There is one entry per step of the trace, or one for the initial point if the trace is empty."""
    for steps, fields, expected in CLAUSES:
        points = trajectory(Constants(**{"init_scale": 8.0, **fields}), [step == "+" for step in steps])
        names = [" ".join(clause.removeprefix("MACHINE-") for clause in point.clauses) for point in points[1 if steps else 0 :]]
        assert names == expected, (steps, fields)


def test_the_oracle_names_only_existing_clauses():
    """The ids are extracted from the sources of the oracle."""
    sources = [path.read_text("utf-8") for path in Path(oracle.__file__).parent.glob("*.py")]
    named = {name for text in sources for name in re.findall(r"\b(?:MACHINE|SCALING|NORMS|STEP|OVERFLOW)-[a-z0-9-]+", text)}
    assert {"MACHINE-state", "MACHINE-reset-bad-steps"} <= named
    assert named <= set(clauses())
