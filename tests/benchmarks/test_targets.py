"""Tests of targets, verdicts and reasons."""

from fnmatch import fnmatch

import pytest
import targets
from targets import EVEN, MET, MISSED, OPEN, Target, evaluate, faults, key, verdict


def row(ratio, quartiles, name="a/b", **more):
    """Return a row with a ratio of ampscale to another implementation."""
    ours = {"name": "ampscale", "kind": "ours", "over": {"other": {"ratio": ratio, "quartiles": quartiles}}, **more}
    return {
        "id": name,
        "unit": "",
        "cells": [ours, {"name": "other", "kind": "other"}, {"name": "third", "absent": "not installed"}],
    }


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
