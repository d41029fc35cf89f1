"""Traces and logs as text, in which a dot is a finite step, an x an overflow, and a question mark a step that is not known."""

import numpy as np

from ampscale.simulation.recordings.logs import read_log

LETTERS = {1: ".", 0: "x", -1: "?"}


def drawn(trace):
    """Return a recorded trace as text."""
    assert np.isinf(trace.limits).all()
    return "".join("." if limit > 0 else "x" for limit in trace.limits)


def drawn_log(text, *arguments, **options):
    """Read a log, and return the steps that it tells of."""
    return steps_of(read_log(text, *arguments, **options))


def steps_of(log):
    """Return the steps that a log tells of."""
    assert log.missing == ""
    return "".join(LETTERS[flag] for flag in log.observed.finite.tolist())
