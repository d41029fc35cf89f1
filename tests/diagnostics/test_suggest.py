"""Suggested scales, compared with a cast of the values to float16; calibration; and runs replayed with other rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ampscale
from ampscale.core.statistics import LOWEST
from ampscale.diagnostics import StepRecord, TensorStatistics, calibrate, limits, replay, suggest
from ampscale.diagnostics.records import Histogram, histograms_of


def measured(values):
    """Return the histogram of *values*."""
    return histograms_of(ampscale.exponent_histogram([np.asarray(values, np.float32)]).tolist(), LOWEST)


def lost(values, scale):
    """Return the share of *values* that float16 rounds to zero at *scale*."""
    with np.errstate(over="ignore", under="ignore"):
        return np.mean((values * scale).astype(np.float16) == 0)


@given(st.integers(0, 2**32 - 1), st.integers(-60, 30), st.floats(0.5, 12), st.sampled_from([0.0, 0.01, 0.2]))
def test_suggested_interval_is_safe_and_exact_to_a_factor_of_four(seed, power, spread, share):
    """
    No value overflows at `high`, and at most *share* is lost at `low`. Neither is true at 4 * `high` and `low` / 4.

    The recommended scale lies between them, with a margin to `high` if there is room, and loses at most `lost_share`.
    """
    values = 2.0 ** (np.random.default_rng(seed).standard_normal(500) * spread + power)
    values = values.astype(np.float32).astype(np.float64)
    suggestion = suggest(measured(values), share=share)
    assert np.max(values) * suggestion.high < 65504
    assert np.max(values) * suggestion.high * 4 > 65504
    assert lost(values, suggestion.low) <= share
    assert lost(values, suggestion.low / 4) > share
    assert suggestion.recommended <= suggestion.high
    if suggestion.low * 4 <= suggestion.high:
        assert suggestion.low <= suggestion.recommended <= suggestion.high / 2
    assert lost(values, suggestion.recommended) <= suggestion.lost_share


def test_suggestion_refers_to_unscaled_gradients():
    """Gradients that were measured at another scale give the same interval."""
    values = np.float32([2.0**-20, 2.0**-10])
    assert suggest(measured(values * 1024), scale=1024.0) == suggest(measured(values))


def test_suggestion_requires_a_finite_nonzero_value():
    """Zeros and infinities are in no histogram."""
    with pytest.raises(ValueError, match=r"^histograms must contain a value that is finite and not zero, got none$"):
        suggest(measured([0.0, np.inf]))


def test_exponents_are_limited():
    """For larger exponents, float64 could not hold the scale."""
    assert suggest([Histogram(-1000, (1,)), Histogram(1000, (1,))]).high == 2.0**-986
    message = "histograms must have exponents from -1000 to 1000, both before and after unscaling, got"
    with pytest.raises(ValueError, match=f"^{message} -3 to 1001 at a scale of 1$"):
        suggest([Histogram(-3, (1,)), Histogram(1001, (1,))])
    for exponent, scale in ((-150, 1e308), (127, 5e-324)):
        with pytest.raises(ValueError, match=f"^{message} {exponent} to {exponent} at a scale of "):
            suggest([Histogram(exponent, (1,))], scale)


@pytest.mark.parametrize("power", [-70, -30, -8, 0, 9])
def test_calibration_finds_the_scale_without_skipped_steps(power):
    """The gradients are computed in float16; the backward pass runs at most nine times."""
    scales = []

    def backward(scale):
        scales.append(scale)
        with np.errstate(over="ignore", under="ignore"):
            return [np.float16(np.float64([1.5, -0.5]) * 2.0**power * scale)]

    rule = calibrate(backward, ampscale.presets.torch())
    assert rule.init_scale == 2.0 ** (13 - power)
    assert len(scales) <= 9


def test_calibration_tries_its_result():
    """Intermediate values of the backward pass are 2**11 times larger than the gradients, so they overflow first."""

    def backward(scale):
        with np.errstate(over="ignore"):
            return [np.float16([scale]) * np.float16(2.0**11) * np.float16(2.0**-11)]

    assert calibrate(backward, ampscale.presets.torch()).init_scale == 16.0


def test_calibration_fails_if_the_lower_bound_overflows():
    """The gradients are finite only at scales below the bound of the rule."""
    rule = ampscale.LossScaleRule(16.0, min_scale=16.0)
    with pytest.raises(ValueError, match=r"^the gradients are not finite at the smallest scale 16: no scale helps$"):
        calibrate(lambda scale: np.float32([1.0 if scale < 16 else np.inf]), rule)


def test_calibration_keeps_the_bounds_of_the_rule():
    """The other constants are unchanged."""
    rule = ampscale.LossScaleRule(init_scale=64.0, min_scale=16.0, max_scale=2.0**10, growth_interval=7)
    tiny, large = (calibrate(lambda scale, g=g: np.float32([g]) * scale, rule) for g in (2.0**-30, 2.0**12))
    assert (tiny.init_scale, large.init_scale, tiny.growth_interval) == (1024.0, 16.0, 7)


@pytest.mark.parametrize(("init_scale", "gradient"), [(0.25, 2.0**37), (2.0**119, 2.0**-144)])
def test_calibration_tries_the_smallest_and_the_largest_scale(init_scale, gradient):
    """All earlier attempts, each at a scale 256 times larger or smaller, overflow or make the gradient zero."""

    def backward(scale):
        with np.errstate(over="ignore"):
            return np.float64([gradient * scale]).astype(np.float16)

    assert np.isfinite(backward(calibrate(backward, ampscale.LossScaleRule(init_scale)).init_scale)).all()


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ([], "backward must return gradients, got"),
        (np.float32([np.nan]), r"the gradients are not finite at any scale from 2\*\*-24 on: no scale helps"),
        (np.float32([0.0]), r"the gradients are zero at every scale up to 2\*\*120"),
        (np.float32([1.0]), r"backward must multiply the loss by its argument, got .* same size at scales 65536 and 5.*e\+08"),
    ],
)
def test_calibration_rejects_gradients_that_are_the_same_at_every_scale(gradients, message):
    """The error states which scales were tried."""
    with pytest.raises(ValueError, match=message):
        calibrate(lambda _: gradients, ampscale.presets.torch())


def test_calibration_fails_if_gradients_are_either_zero_or_infinite():
    """They are zero below a scale of 64."""
    with pytest.raises(ValueError, match="either zero or not finite at every scale: no scale helps"):
        calibrate(lambda scale: np.float32([0.0 if scale < 64 else np.inf]), ampscale.presets.torch())


@pytest.mark.parametrize("init_scale", [2.0**-25, 2.0**121])
def test_calibration_rejects_an_initial_scale_that_it_cannot_try(init_scale):
    """No gradients are computed."""
    with pytest.raises(ValueError, match=r"rule must have an init_scale from 2\*\*-24 to 2\*\*120, got"):
        calibrate(None, ampscale.LossScaleRule(init_scale=init_scale))


def step(number, scale, largest=None, infinities=1, finite=True):
    """Return the record of a step with one gradient, whose largest exponent is *largest*; if this is None, it is not measured."""
    infinities, nans = (0, 0) if finite else (infinities, 1)
    tensors = None if largest is None else (TensorStatistics(4, 0, 0, 0, infinities, nans, -3, largest),)
    return StepRecord(number, scale, scale, finite, finite, measured_scale=None if tensors is None else scale, tensors=tensors)


def test_limits_follow_from_exponents():
    """The limit is inf without statistics, and -inf for NaNs at a scale at which an earlier step was finite."""
    records = [
        step(0, 1024.0, largest=3),  # below 2**4 at 1024, so below 2**15 at 2**21
        step(1, 1024.0),
        step(2, 1024.0, largest=9, finite=False),
        step(3, 256.0, largest=14),
        step(4, 256.0, largest=9, infinities=0, finite=False),
    ]
    assert limits(records).limits.tolist() == [2.0**21, np.inf, 256.0, 256.0, -np.inf]


def test_nans_at_the_first_scales_have_the_limit_of_an_overflow():
    """A backward pass in float16 that overflows everywhere produces NaNs and no infinity."""
    records = [step(0, 1024.0, largest=9, infinities=0, finite=False), step(1, 512.0)]
    assert limits(records).limits.tolist() == [512.0, np.inf]


def test_limit_after_an_overflow_on_another_rank_is_half_the_scale():
    """The gradients of this rank have neither infinities nor NaNs."""
    tensors = (TensorStatistics(4, 0, 0, 0, 0, 0, -3, 9),)
    record = StepRecord(0, 1024.0, 512.0, finite=False, applied=False, measured_scale=1024.0, tensors=tensors, rank=0)
    assert limits([record]).limits.tolist() == [512.0]


def test_replay_counts_the_skipped_steps_of_every_preset():
    """A rule that starts with a smaller scale skips fewer steps."""
    records = [step(number, 2.0**10, largest=13) for number in range(20)]  # finite up to 2**11
    results = {name: (skipped, scale) for name, skipped, scale in replay(records)}
    assert set(results) == set(ampscale.presets.PRESETS)
    assert results["torch"] == (5, 2.0**11)
    assert results["static"] == (0, 128.0)
    assert [row.skipped for row in replay(records)] == sorted(row.skipped for row in replay(records))
    assert replay(records, {"mine": ampscale.presets.torch(2.0**12)}) == [("mine", 1, 2.0**11)]
