"""Settings guessed from observed scales."""

import math

import numpy as np
import pytest

from ampscale.simulation.identification.guessed_settings import guesses
from ampscale.simulation.traces import Observed, Overflow

SETTINGS = {"hysteresis": 1, "growth_interval": 2000, "growth_factor": 2.0, "backoff_factor": 0.5, "min_scale": 1.0}
SETTINGS |= {"max_scale": 2.0**24}


def observed(scales, flags=None):
    """Return an observation; flags are 1, 0, and -1 (unknown, the default)."""
    flags = np.full(len(scales) - 1, -1) if flags is None else flags
    return Observed(np.array(scales, np.float64), np.array(flags, np.int8))


def test_guesses_are_other_values_of_the_given_settings():
    """
    Hysteresis and tolerance have usual values, bounds are the extreme scales, and an error is only ever removed.

    An interval is guessed only after a growth, and a factor only if most ratios differ from the given one.
    """
    assert guesses(observed([64, 64]), {"hysteresis": 2, "init_scale": 64.0}) == {"hysteresis": [1, 3, 4]}
    assert guesses(observed([64, 64]), {"overflow_tolerance": 0.05}) == {"overflow_tolerance": [0.1, 0.2, 0.25, 0.3, 0.5]}
    assert guesses(observed([64, 64]), {"overflow_tolerance": None}) == {}
    values = guesses(observed([64, 32, 16]), SETTINGS)
    assert values == {"hysteresis": [2, 3, 4], "min_scale": [16.0], "max_scale": [64.0]}
    assert guesses(observed([64, 32]), {"raise_at_min_scale": True}) == {"raise_at_min_scale": [False]}
    assert guesses(observed([64, 32]), {"raise_at_min_scale": False}) == {}


INTERVALS = {  # for each origin of the interval: scales, flags, and guessed intervals
    "from the start": ([64, 64, 64, 128], None, [3, 2]),
    "from the shortest of several windows": ([64, 32, 32, 32, 64, 64, 128], None, [2, 1]),
    "from an overflow that left the scale, and from the start": ([64, 64, 64, 64, 128], [1, 0, 1, 1], [2, 1, 3]),
    "from a backoff": ([64] * 8 + [32, 32, 32, 32, 64], None, [4, 3]),
    "from a growth to the next": ([64, 128, 256], None, [1]),
    "from the start to a delayed growth at an overflow": ([64, 64, 64, 128], [1, 1, 0], [3, 2]),
}


@pytest.mark.parametrize("origin", INTERVALS)
def test_an_interval_is_the_number_of_steps_from_an_event_to_a_growth(origin):
    """The number of steps minus one is guessed, too, as the windows of some scalers are one step longer than their setting."""
    scales, flags, intervals = INTERVALS[origin]
    assert guesses(observed(scales, flags), {"growth_interval": 2000})["growth_interval"] == intervals


def test_the_first_growth_of_a_resumed_run_gives_no_interval():
    """The interval is the number of steps between the first growth and the second one."""
    scales = observed([64, 64, 128, 128, 128, 128, 256])
    for resumed, intervals in ((False, [2, 1]), (True, [4, 3])):
        assert guesses(scales, {"growth_interval": 2000}, resumed=resumed)["growth_interval"] == intervals


def test_sparse_scales_give_a_range_of_intervals():
    """Round numbers come first. Intervals below the range are included if overflows may be unobserved."""
    scales = np.full(801, np.nan)
    scales[::100] = 64, 64, 64, 64, 128, 128, 128, 128, 256
    known = guesses(observed(scales, np.ones(800)), {"growth_interval": 2000})["growth_interval"]
    assert known == [400, 399, 390, 389, 384, 383]
    unknown = guesses(observed(scales), {"growth_interval": 2000})["growth_interval"]
    assert unknown[:6] == known
    assert set(unknown) >= {256, 300}


@pytest.mark.parametrize(
    ("scales", "factor", "resumed", "longest"),
    [
        ([64, *[math.nan] * 29, 64, *[math.nan] * 9, 512], 2.0, False, 4),  # three growths in ten steps
        ([64, *[math.nan] * 39, 512], 2.0, False, 10),  # three in forty steps: at most 13, of which 10 is the round number
        ([64, *[math.nan] * 8, 144], 1.5, False, 4),  # two in nine steps
        ([64, *[math.nan] * 8, 144], 1.5, True, 8),
    ],
)
def test_several_growths_between_two_scales_limit_the_interval(scales, factor, resumed, longest):
    """The growth factor determines the number of growths. The longest interval is the first guess."""
    tried = {"growth_interval": 2000, "growth_factor": factor}
    assert guesses(observed(scales, np.ones(len(scales) - 1)), tried, resumed=resumed)["growth_interval"][0] == longest


def test_the_tolerance_of_a_ratio_is_twice_that_of_a_scale():
    """With a tolerance, guessed factors have fewer digits. A ratio within its tolerance agrees with the factor of the rule."""
    for rtol, exact in ((1e-3, True), (0.0, False)):
        assert (guesses(observed([65536, 52400]), {"backoff_factor": 0.5}, rtol=rtol)["backoff_factor"][0] == 0.8) is exact
    for second, is_other in ((50.75, False), (51.25, True)):
        assert ("backoff_factor" in guesses(observed([100.0, second]), {"backoff_factor": 0.5}, rtol=0.01)) == is_other
        assert ("growth_factor" in guesses(observed([second, 100.0]), {"growth_factor": 2.0}, rtol=0.01)) == is_other


@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0, 4.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_have_few_digits(factor, dtype):
    """
    The guess is the setting, not the ratio of rounded scales.

    A factor that was tried is not guessed. Without growths, a growth factor is guessed only if there is no backoff factor.
    """
    scales = [dtype(1000)]
    for _ in range(3):
        scales += [dtype(scales[-1] * dtype(factor))]
    assert guesses(observed(scales), {"growth_factor": 2.0})["growth_factor"][0] == factor
    assert guesses(observed(scales[::-1]), {"growth_factor": 2.0})["growth_factor"][0] == factor
    assert guesses(observed(scales[::-1]), {"backoff_factor": 0.5})["backoff_factor"][0] == 1 / factor
    assert "growth_factor" not in guesses(observed(scales), {"growth_factor": factor})
    assert "growth_factor" not in guesses(observed(scales[::-1]), {"growth_factor": 2.0, "backoff_factor": 0.5})
    assert guesses(observed([*scales, 2 * scales[-1]]), {"growth_factor": 2.0})["growth_factor"][0] == factor  # the most common


def test_intervals_are_guessed_for_the_most_common_ratio_as_well():
    """
    The scale grows by 4 every three steps. The last four steps, whose scales are unknown, contain one growth by 4 or two by 2,
    and two growths have shorter intervals.
    """
    scales = [1, 1, 1, 4, 4, 4, 16, math.nan, math.nan, math.nan, 64]
    assert set(guesses(observed(scales), {"growth_interval": 2000, "growth_factor": 2.0})["growth_interval"]) == {3, 2, 1}
    assert set(guesses(observed(scales), {"growth_interval": 2000})["growth_interval"]) == {3, 2, 1}


def test_slow_growth_gives_the_steps_of_a_doubling():
    """The most frequent ratio is used, as a bound may limit the last step."""
    scales = np.append(1000 * 2 ** (np.arange(60) / 50), 2300)
    assert 50 in guesses(observed(scales), {"growth_interval": 1000})["growth_interval"]


def test_zero_and_infinity_give_no_factor():
    """Infinity is not guessed as `max_scale` either."""
    values = guesses(observed([0.0, 0.0, 64, math.inf, math.inf]), SETTINGS | {"growth_interval": 1})
    assert values == {"hysteresis": [2, 3, 4], "min_scale": [0.0], "max_scale": [64.0]}


def test_overflows_give_factors_and_bounds_but_no_interval():
    """The numbers of steps between the overflows are unknown."""
    values = guesses([Overflow(1, 1000.0, 700.0), Overflow(2, math.nan, 490.0)], SETTINGS)
    assert values.pop("backoff_factor")[0] == 0.7
    assert values == {"hysteresis": [2, 3, 4], "min_scale": [490.0], "max_scale": [1000.0]}


@pytest.mark.parametrize(("steady", "intervals"), [(2, [4, 3, 2, 1]), (14, [16, 15, 10, 9, 8])])
def test_unobserved_overflows_allow_all_intervals_up_to_the_longest(steady, intervals):
    """If many intervals are possible, only the roundest are tried: those with few decimal digits or few one bits."""
    scales = [64, math.nan, *[64] * steady, 128]
    assert list(dict.fromkeys(guesses(observed(scales), {"growth_interval": 2000})["growth_interval"])) == intervals
