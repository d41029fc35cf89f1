"""Verdicts: what is met, what is not told apart from its bound, and what must be explained."""

import pytest
import targets
from targets import EVEN, FLOOR, MET, MISSED, OPEN, Target, faults, judged, key, verdict


def row(ratio, quartiles, name="a/b", **more):
    """A row in which ours takes so many times what the rival takes."""
    over = {"ratio": ratio, "quartiles": quartiles}
    ours = {"name": "ampscale", "kind": "ours", "over": {"rival": over}, "over_floor": over, **more}
    return {"id": name, "cells": [ours, {"name": "rival", "kind": "rival"}, {"name": "third", "absent": "not installed"}]}


@pytest.mark.parametrize("over", ["rival", FLOOR])
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
def test_a_ratio_is_judged_by_its_bound_and_its_spread(over, ratio, quartiles, expected):
    """Above the bound by less than half the interquartile range is even, and more is missed."""
    assert verdict(Target("a/*", over, 1.0, ""), row(ratio, quartiles))["verdict"] == expected


@pytest.mark.parametrize(("value", "error", "expected"), [(4, 0, MET), (5, 0, MISSED), (4.05, 0.1, EVEN)])
def test_a_value_is_judged_by_its_bound_and_its_error(value, error, expected):
    """A size in bytes has none; an exponent has that of its fit."""
    assert verdict(Target("a/*", None, 4, ""), row(1, [1, 1], value=value, error=error))["verdict"] == expected


def test_what_was_not_measured_is_not_judged():
    """A rival that is absent, and one of ours that is not there."""
    assert verdict(Target("a/*", "third", 1.0, ""), row(1, [1, 1]))["verdict"] == OPEN
    assert verdict(Target("a/*", "rival", 1.0, "", of="other"), row(1, [1, 1]))["verdict"] == OPEN


def test_a_pattern_binds_each_row_that_matches(monkeypatch):
    """And each has its own verdict and its own reason."""
    target = Target("a/*", "rival", 1.0, "words")
    monkeypatch.setattr(targets, "TARGETS", (target,))
    rows = [row(2.0, [2, 2], "a/1"), row(2.0, [2, 2], "a/2"), row(0.5, [0.5, 0.5], "a/3"), row(9, [9, 9], "b/1")]
    found = judged(rows, {key(target, "a/1"): "why"})
    assert [(one["row"], one["verdict"], one["reason"]) for one in found] == [
        ("a/1", MISSED, "why"),
        ("a/2", MISSED, None),
        ("a/3", MET, None),
    ]
    assert len(faults(found)) == 1
    assert "a/2" in faults(found)[0]


def test_each_reason_is_of_a_target_and_says_something():
    """A reason of nothing would be read by nobody."""
    for name, text in targets.read_reasons().items():
        assert targets.is_of_a_target(name), name
        assert len(text.split()) > 8
