"""Traces and logs as text: a dot is a finite step, an x is an overflow, and a question mark is a step with an unknown flag."""

import numpy as np

from ampscale.simulation.recordings.logs import read_log

LETTERS = {1: ".", 0: "x", -1: "?"}


def as_text(trace):
    """Return a recorded trace, whose limits are infinite, as text."""
    assert np.isinf(trace.limits).all()
    return "".join("." if limit > 0 else "x" for limit in trace.limits)


def read_steps(text, *arguments, **options):
    """Read a log, and return its steps as text."""
    return steps_of(read_log(text, *arguments, **options))


def steps_of(log):
    """Return the steps of a log, which must be known, as text."""
    assert log.missing == ""
    return "".join(LETTERS[flag] for flag in log.observed.finite.tolist())
