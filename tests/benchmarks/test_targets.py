"""Tests of targets, verdicts and reasons."""

from fnmatch import fnmatch

import pytest
import targets
from targets import BASELINE, EVEN, MET, MISSED, OPEN, Target, evaluate, faults, key, verdict


def row(ratio, quartiles, name="a/b", **more):
    """Return a row with a ratio of ampscale to another implementation."""
    over = {"ratio": ratio, "quartiles": quartiles}
    ours = {"name": "ampscale", "kind": "ours", "over": {"other": over}, "over_baseline": over, **more}
    return {
        "id": name,
        "unit": "",
        "cells": [ours, {"name": "other", "kind": "other"}, {"name": "third", "absent": "not installed"}],
    }


@pytest.mark.parametrize("over", ["other", BASELINE])
@pytest.mark.parametrize(
    ("ratio", "quartiles", "expected"),
    [
        (0.9, [0.8, 1.2], MET),
        (1.0, [1.0, 1.0], MET),
        (1.01, [1.0, 1.04], EVEN),
        (1.15, [1.0, 1.2], MISSED),
        (1.05, [1.04, 1.06], MISSED),
        (2.0, [1.9, 2.1], MISSED),
    ],
)
def test_verdict_depends_on_bound_and_spread(over, ratio, quartiles, expected):
    """A ratio that exceeds the bound by at most half the interquartile range is "within the spread"."""
    assert verdict(Target("a/*", over, 1.0, ""), row(ratio, quartiles))["verdict"] == expected


@pytest.mark.parametrize(("value", "error", "expected"), [(4, 0, MET), (5, 0, MISSED), (4.05, 0.1, EVEN)])
def test_verdict_of_a_value_depends_on_its_error(value, error, expected):
    """A size in bytes has no error; an exponent has the standard error of its fit, and a duration has quartiles."""
    assert verdict(Target("a/*", None, 4, ""), row(1, [1, 1], value=value, error=error))["verdict"] == expected
    seconds = {"median": value, "quartiles": [value - error, value + error]}
    timed = {"id": "a/b", "unit": "s", "cells": [{"name": "ampscale", **seconds}]}
    assert verdict(Target("a/*", None, 4, ""), timed)["verdict"] == expected


def test_unmeasured_contender_has_no_verdict():
    """The contender is marked as absent in the row, or the row does not have it."""
    assert verdict(Target("a/*", "third", 1.0, ""), row(1, [1, 1]))["verdict"] == OPEN
    assert verdict(Target("a/*", "other", 1.0, "", of="missing"), row(1, [1, 1]))["verdict"] == OPEN


def test_target_applies_to_all_matching_rows(monkeypatch):
    """Each row has its own verdict. A row that misses the target has the recorded reason, or is a fault."""
    target = Target("a/*", "other", 1.0, "description")
    monkeypatch.setattr(targets, "TARGETS", (target,))
    rows = [row(2.0, [2, 2], "a/1"), row(2.0, [2, 2], "a/2"), row(0.5, [0.5, 0.5], "a/3"), row(9, [9, 9], "b/1")]
    verdicts = evaluate(rows, {key("a/1", target.of, target.over): "why", key("a/3", target.of, target.over): "was missed"})
    assert [(row["row"], row["verdict"], row["reason"]) for row in verdicts] == [
        ("a/1", MISSED, "why"),
        ("a/2", MISSED, None),
        ("a/3", MET, None),
    ]
    assert len(faults(verdicts)) == 1
    assert "a/2" in faults(verdicts)[0]


def test_reasons_belong_to_targets():
    """No reason remains for a target that was removed or renamed."""
    keys = [key(target.rows, target.of, target.over) for target in targets.TARGETS]
    for name in targets.read_reasons():
        assert any(fnmatch(name, pattern) for pattern in keys), name
