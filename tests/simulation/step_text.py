"""Steps of traces and logs as text: "." is a finite step, "x" an overflow, and "?" a step with an unknown flag."""

import numpy as np

from ampscale.simulation.recordings.logs import read_log

LETTERS = {1: ".", 0: "x", -1: "?"}


def as_text(trace):
    """Return the steps of a trace as text. The trace must be recorded: each limit is inf (finite step) or -inf (overflow)."""
    assert np.isinf(trace.limits).all()
    return "".join("." if limit > 0 else "x" for limit in trace.limits)


def read_steps(text, *arguments, **options):
    """Read a log, and return the steps in it as text. The arguments are those of `read_log`."""
    return steps_of(read_log(text, *arguments, **options))


def steps_of(log):
    """Return the steps of a log as text. The log must number its steps."""
    assert log.missing == ""
    return "".join(LETTERS[flag] for flag in log.observed.finite.tolist())


def one_line_id(value):
    """Return the id of a parameter: its text, or "" if it is bytes or has several lines."""
    return "" if isinstance(value, bytes) or "\n" in str(value) else str(value)
