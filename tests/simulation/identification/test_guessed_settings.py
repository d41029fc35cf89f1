"""What scales suggest of a scaler's settings."""

import math

import numpy as np
import pytest

from ampscale.simulation.identification.guessed_settings import guesses
from ampscale.simulation.recordings.log_formats import Overflow
from ampscale.simulation.traces import Observed

TRIED = {"hysteresis": 1, "growth_interval": 2000, "growth_factor": 2.0, "backoff_factor": 0.5, "min_scale": 1.0}
TRIED |= {"max_scale": 2.0**24}


def seen(scales, flags=None):
    """Scales, and flags as 1, 0 and -1; none are known by default."""
    flags = np.full(len(scales) - 1, -1) if flags is None else flags
    return Observed(np.array(scales, np.float64), np.array(flags, np.int8))


def test_only_settings_that_there_are_are_guessed_and_never_as_they_were_tried():
    """Hysteresis is any of the small numbers, an interval needs a growth, a factor one that is not the one tried."""
    assert guesses(seen([64, 64]), {"hysteresis": 2, "init_scale": 64.0}) == {"hysteresis": [1, 3, 4]}
    found = guesses(seen([64, 32, 16]), TRIED)
    assert found == {"hysteresis": [2, 3, 4], "min_scale": [16.0], "max_scale": [64.0]}
    assert guesses(seen([64, 32]), {"raise_at_min_scale": True}) == {"raise_at_min_scale": [False]}
    assert guesses(seen([64, 32]), {"raise_at_min_scale": False}) == {}


@pytest.mark.parametrize(
    ("scales", "flags", "intervals"),
    [
        ([64, 64, 64, 128], None, [3, 2]),  # from the start
        ([64, 32, 32, 32, 64, 64, 128], None, [2, 1]),  # the shortest of all
        ([64, 64, 64, 64, 128], [1, 0, 1, 1], [2, 1]),  # from an overflow that left the scale
        ([64] + [64] * 7 + [32, 32, 32, 32, 64], None, [4, 3]),  # from a backoff
        ([64, 128, 256], None, [1]),
    ],
)
def test_an_interval_is_the_time_from_an_event_to_a_growth(scales, flags, intervals):
    """Or one less, where a scaler's first window, or each, is one longer than its setting."""
    assert guesses(seen(scales, flags), {"growth_interval": 2000})["growth_interval"] == intervals


def test_a_resumed_run_has_no_first_window():
    """Its first growth says nothing, the second does."""
    scales = seen([64, 64, 128, 128, 128, 128, 256])
    for resumed, intervals in ((False, [2, 1]), (True, [4, 3])):
        assert guesses(scales, {"growth_interval": 2000}, resumed=resumed)["growth_interval"] == intervals


def test_scales_that_are_far_apart_leave_a_range():
    """Round numbers of it come first; where overflows may have gone unseen, also smaller ones."""
    scales = np.full(801, np.nan)
    scales[::100] = 64, 64, 64, 64, 128, 128, 128, 128, 256
    told = guesses(seen(scales, np.ones(800)), {"growth_interval": 2000})["growth_interval"]
    assert told == [400, 399, 390, 389, 384, 383]
    untold = guesses(seen(scales), {"growth_interval": 2000})["growth_interval"]
    assert untold[:6] == told
    assert set(untold) >= {256, 300}


def test_growths_that_were_seen_as_one_bound_the_interval():
    """Three growths within ten steps are at most four apart, and three in the first forty at most thirteen: ten is round."""
    scales = np.full(41, np.nan)
    scales[[0, 30, 40]] = 64, 64, 512
    tried = {"growth_interval": 2000, "growth_factor": 2.0}
    assert max(guesses(seen(scales, np.ones(40)), tried)["growth_interval"]) == 4
    scales[30] = np.nan
    assert max(guesses(seen(scales, np.ones(40)), tried)["growth_interval"]) == 10


def test_a_factor_of_scales_with_few_digits_is_shorter_still():
    """Within twice their error."""
    for rtol, exact in ((1e-3, True), (0.0, False)):
        assert (guesses(seen([65536, 52400]), {"backoff_factor": 0.5}, rtol=rtol)["backoff_factor"][0] == 0.8) is exact


@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0, 4.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factor_is_a_short_number(factor, dtype):
    """As it was set, and not as rounding left it."""
    scales = [dtype(1000)]
    for _ in range(3):
        scales += [dtype(scales[-1] * dtype(factor))]
    assert guesses(seen(scales), {"growth_factor": 2.0})["growth_factor"][0] == factor
    assert guesses(seen(scales[::-1]), {"growth_factor": 2.0})["growth_factor"][0] == factor
    assert guesses(seen(scales[::-1]), {"backoff_factor": 0.5})["backoff_factor"][0] == 1 / factor
    assert "growth_factor" not in guesses(seen(scales), {"growth_factor": factor})
    assert "growth_factor" not in guesses(seen(scales[::-1]), {"growth_factor": 2.0, "backoff_factor": 0.5})


def test_a_scale_that_creeps_tells_in_how_many_steps_it_doubles():
    """The commonest ratio counts: the last step may have been cut off by a bound."""
    scales = np.append(1000 * 2 ** (np.arange(60) / 50), 2300)
    assert 50 in guesses(seen(scales), {"growth_interval": 1000})["growth_interval"]


def test_zero_and_infinity_tell_nothing():
    """They are no bounds, and no factor leads to them."""
    found = guesses(seen([0.0, 0.0, 64, math.inf, math.inf]), TRIED | {"growth_interval": 1})
    assert found == {"hysteresis": [2, 3, 4], "min_scale": [0.0], "max_scale": [64.0]}


def test_overflows_tell_factors_and_bounds_and_no_interval():
    """The steps between them are not known; the scales before and after them are."""
    found = guesses([Overflow(1, 1000.0, 700.0), Overflow(2, math.nan, 490.0)], TRIED)
    assert found.pop("backoff_factor")[0] == 0.7
    assert found == {"hysteresis": [2, 3, 4], "min_scale": [490.0], "max_scale": [1000.0]}


def test_small_intervals_are_guessed_where_overflows_can_have_gone_unseen():
    """From one to the longest that fits."""
    scales = [64, math.nan, 64, 64, 128]
    assert set(guesses(seen(scales), {"growth_interval": 2000})["growth_interval"]) == {1, 2, 3, 4}


def test_growths_are_counted_by_the_factor_that_was_tried():
    """Two growths by 1.5 that were seen as one are at most as far apart as the steps between them."""
    tried = {"growth_interval": 2000, "growth_factor": 1.5}
    scales = [64.0, *[math.nan] * 8, 64.0 * 1.5**2]
    assert max(guesses(seen(scales, np.ones(9)), tried)["growth_interval"]) == 4
    assert max(guesses(seen(scales, np.ones(9)), tried, resumed=True)["growth_interval"]) == 8


def test_a_ratio_within_twice_the_error_is_that_of_the_factor_tried():
    """One beyond it is another factor."""
    for ratio, is_other in ((0.505, False), (0.5125, True)):
        assert ("backoff_factor" in guesses(seen([100.0, 100.0 * ratio]), {"backoff_factor": 0.5}, rtol=0.01)) is is_other


def test_the_longest_interval_is_guessed_also_where_overflows_can_have_gone_unseen():
    """It is round here; a guess of 7 would need it to be left out."""
    scales = [64, math.nan, *[64] * 14, 128]
    assert guesses(seen(scales), {"growth_interval": 2000})["growth_interval"] == [16, 15, 10, 9, 8]
