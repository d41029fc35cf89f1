"""Overflow traces from flags, text and a model; validation of observations."""

import math
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.step_text import as_text
from strategies import alike

from ampscale import LossScaleRule
from ampscale.simulation import Observed, Trace, from_flags, from_model, from_string, simulate

FLAGS = np.ones(1, np.int8)


def close_to(share, steps):
    """Return the range that contains the observed share of *steps* independent steps, except with probability 1e-10."""
    return pytest.approx(share, abs=6.5 * math.sqrt(share * (1 - share) / steps))


def test_recorded_steps_have_infinite_limits():
    """A finite step has the limit inf, an overflow -inf. Flags can be any iterable, even an empty one."""
    for make in (list, tuple, iter, np.array):
        trace = from_flags(make([True, False, np.True_]))
        assert alike(trace.limits, np.array([math.inf, -math.inf, math.inf]))
    assert len(trace) == 3
    assert len(from_flags([])) == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: from_flags([True, 1]), TypeError, "flags must be bools, got 1 at step 1"),
        (lambda: from_flags([True, np.int64(0)]), TypeError, f"flags must be bools, got {np.int64(0)!r} at step 1"),
        (lambda: from_flags(np.array([1, 0])), TypeError, "flags must be a NumPy array of bool, got dtype int64"),
        (lambda: from_flags(np.array([[True]])), ValueError, "flags must have one axis, got shape (1, 1)"),
        (lambda: from_string(b"."), TypeError, "text must be a string of '.' and 'x', got b'.' of type bytes"),
        (lambda: from_string("..o"), ValueError, "trace must consist of '.' and 'x', got 'o' in line 1, column 3"),
        (lambda: from_string("x.\n\n\n..é"), ValueError, "got 'é' in line 4, column 3"),
        (lambda: from_string(".\x00"), ValueError, r"got '\x00' in line 1, column 2"),
        (lambda: Trace([1.0]), TypeError, "limits must be a NumPy array of float64, got [1.0] of type list"),
        (lambda: Trace(np.ones(2, np.float32)), TypeError, "limits must be a NumPy array of float64, got dtype float32"),
        (lambda: Trace(np.ones((2, 1))), ValueError, "limits must have one axis, got shape (2, 1)"),
        (lambda: Trace(np.array([1, np.nan])), ValueError, "limits must not contain NaN, got one at step 1"),
        (lambda: Observed([1.0, 1.0], FLAGS), TypeError, "scales must be a NumPy array of float64, got [1.0, 1.0] of type list"),
        (lambda: Observed(np.ones(2), np.ones(1, bool)), TypeError, "finite must be a NumPy array of int8, got dtype bool"),
        (lambda: Observed(np.ones((2, 1)), FLAGS), ValueError, "scales must have one axis"),
        (lambda: Observed(np.ones(1), FLAGS), ValueError, "scales must have one more element than finite, got 1 and 1"),
        (lambda: Observed(np.array([1.0, -0.5]), FLAGS), ValueError, "scales must not be negative, got -0.5"),
        (lambda: Observed(np.ones(2), 2 * FLAGS), ValueError, "finite must contain -1, 0 and 1 only, got [2]"),
    ],
)
def test_invalid_flags_and_arrays_raise_an_error(call, error, message):
    """Numbers are not converted to flags. Lines and columns are counted from 1."""
    with pytest.raises(error, match=re.escape(message)):
        call()


@given(st.text(".xX \n\t\r", max_size=40))
def test_text_is_parsed(text):
    """Upper and lower case x are overflows, and whitespace is ignored."""
    assert as_text(from_string(text)) == "".join(text.split()).lower()


def test_observed_converts_to_a_trace_if_all_flags_are_known():
    """The error for unknown flags gives their number and the first of these steps."""
    assert as_text(Observed(np.ones(5), np.array([1, 0, 0, 1], np.int8)).trace()) == ".xx."
    unknown = "an overflow trace requires the flag of every step, but 2 of 4 flags are unknown, the first at step 1"
    with pytest.raises(ValueError, match=unknown):
        Observed(np.ones(5), np.array([1, -1, -1, 1], np.int8)).trace()


def test_a_model_is_log_normal():
    """The limits are independent. Their median is `above`, and the standard deviation of their base-2 logarithms is `noise`."""
    steps, noise = 200_000, 1.5
    powers = np.log2(from_model(steps, above=2.0**15, noise=noise, seed=3).limits) - 15
    for power in (-3, -1, 0, 0.5, 2):
        assert (powers < power).mean() == close_to((1 + math.erf(power / noise / math.sqrt(2))) / 2, steps)
    assert powers.std() == pytest.approx(noise, rel=6.5 / math.sqrt(2 * steps))
    assert ((powers[1:] > 0) == (powers[:-1] > 0)).mean() == close_to(0.5, steps - 1)


def test_drift_changes_the_median():
    """Without noise, the change of the limits is exact."""
    medians = from_model(3001, above=8.0, drift=-2.0).limits
    assert medians[[0, 500, 1000, 3000]].tolist() == [8.0, 4.0, 2.0, 0.125]
    noisy = from_model(3001, above=8.0, noise=1.0, drift=-2.0).limits
    assert np.log2(noisy / medians).mean() == pytest.approx(0, abs=6.5 / math.sqrt(3001))
    assert alike(from_model(4, above=0.1).limits, np.full(4, 0.1))  # without noise and drift, bit for bit


def test_seed_determines_the_trace():
    """A longer trace with the same seed starts with the shorter one. The seed is 0 by default."""
    assert alike(from_model(99, 8.0, noise=1.0).limits, from_model(99, 8.0, noise=1.0, seed=0).limits)
    first = from_model(100, 1.0, noise=1.0, seed=5)
    assert alike(first.limits, from_model(200, 1.0, noise=1.0, seed=5).limits[:100])
    assert not np.isclose(first.limits, from_model(100, 1.0, noise=1.0, seed=6).limits).any()


def test_limits_out_of_range_are_infinite_or_zero():
    assert {0.0, math.inf} < set(from_model(1000, 1.0, noise=1000.0).limits)
    assert from_model(2000, 8.0, drift=1000.0).limits[-1] == math.inf
    assert from_model(2000, 8.0, drift=-1000.0).limits[-1] == 0


@pytest.mark.parametrize(
    ("error", "name", "values", "message"),
    [
        (ValueError, "steps", [0], "steps must be an int from 1"),
        (TypeError, "steps", [1.0], "steps must be an int"),
        (ValueError, "above", [0.0, math.inf], "above must be a positive, finite number"),
        (TypeError, "above", ["8"], "above must be a positive, finite number"),
        (ValueError, "noise", [-1.0, 1001, math.nan], "noise must be a number from 0 to 1000"),
        (ValueError, "drift", [-1e9, 1001], "drift must be a number from -1000 to 1000"),
        (TypeError, "drift", [None], "drift must be a number from -1000 to 1000"),
        (ValueError, "seed", [-1], "seed must be an int from 0"),
        (TypeError, "seed", [None], "seed must be an int from 0"),
    ],
)
def test_invalid_model_raises_an_error(error, name, values, message):
    for value in values:
        with pytest.raises(error, match=message):
            from_model(**{"steps": 10, "above": 8.0, name: value})


def test_records_are_immutable():
    trace = from_flags([True])
    for record in (trace, Observed(np.ones(2), FLAGS), simulate(LossScaleRule(), trace)):
        with pytest.raises(FrozenInstanceError):
            record.scales = None
