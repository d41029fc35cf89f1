"""Tests of the measurement and the comparison of times."""

import measure
import pytest
from measure import Absent, Contender, cells, in_turn, ratio


class Clock:
    """Clock that only the measured calls advance, so that no test depends on the machine."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def takes(self, seconds):
        def run():
            self.now += seconds

        return run


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that replaces `time.perf_counter`."""
    clock = Clock()
    monkeypatch.setattr(measure.time, "perf_counter", clock)
    return clock


@pytest.mark.parametrize("seconds", [0.01, 1e-6])
def test_reset_is_not_timed(clock, seconds):
    """A reset that takes a hundred times as long has no effect, even if a short call is repeated."""
    (times,) = in_turn([Contender("a", clock.takes(seconds), clock.takes(100 * seconds))], seconds=100 * seconds)
    assert list(times.values()) == pytest.approx([seconds] * len(times))


def test_short_call_is_repeated_within_a_sample(clock):
    """A sample is the mean time of one call. It takes about 0.5 ms, so a call of 1 microsecond is repeated at least 400 times."""
    calls = []

    def run():
        calls.append(1)
        clock.now += 1e-6

    (times,) = in_turn([Contender("a", run)], seconds=0.01)
    assert len(calls) >= 400 * len(times)
    assert list(times.values()) == pytest.approx([1e-6] * len(times))


def test_contenders_rotate_from_round_to_round(clock):
    """Another contender is first in each round."""
    order = []

    def named(name):
        def run():
            order.append(name)
            clock.now += 0.01

        return Contender(name, run)

    in_turn([named(name) for name in "abc"], seconds=0.3)
    rounds = ["".join(order[index : index + 3]) for index in range(6, len(order), 3)]  # after two warm-up rounds
    assert rounds[:4] == ["abc", "bca", "cab", "abc"]


def test_number_of_samples_has_a_minimum(clock):
    """Slow contenders have three samples. Quick contenders, ampscale, and contenders with a target have at least seven."""
    contenders = [Contender("quick", clock.takes(0.001)), Contender("slow", clock.takes(2.0))]
    contenders.append(Contender("c", clock.takes(2.0), kind="ours"))
    assert [len(times) for times in in_turn(contenders, seconds=0.001)] == [7, 3, 7]
    assert [len(times) for times in in_turn(contenders, seconds=0.001, thorough={"slow"})] == [7, 7, 7]


def test_ratio_is_of_the_medians_and_its_quartiles_are_of_common_rounds():
    """A slow contender does not run in each round."""
    assert ratio({0: 1.0, 1: 2.0, 2: 3.0}, {1: 1.0}) == {"ratio": 2.0, "quartiles": [2.0, 2.0]}
    times = dict(enumerate([1.0, 2.0, 3.0, 4.0, 15.0]))
    assert ratio(times, dict.fromkeys(range(5), 1.0)) == {"ratio": 3.0, "quartiles": [2.0, 4.0]}


def test_fastest_baseline_is_used(clock):
    """The ratio of each contender is relative to the fastest baseline."""
    times = {"ampscale": 0.03, "max": 0.02, "dot": 0.01}
    kinds = {"ampscale": "ours"}
    row = cells([Contender(name, clock.takes(time), kind=kinds.get(name, "baseline")) for name, time in times.items()], 0.1)
    assert [cell["over_baseline"]["ratio"] for cell in row] == pytest.approx([3, 2, 1])


def test_ampscale_has_a_ratio_to_each_contender(clock):
    """A ratio below 1 means that ampscale is faster. A contender that cannot be measured has a reason instead of times."""
    ours, other = Contender("ampscale", clock.takes(0.01), kind="ours"), Contender("other", clock.takes(0.04))
    row = cells([ours, Absent("third", "not installed"), other], 0.1)
    assert [cell["name"] for cell in row] == ["ampscale", "third", "other"]
    assert row[0]["over"]["other"]["ratio"] == pytest.approx(0.25)
    assert set(row[0]["over"]) == {"other"}
    assert row[0]["quartiles"] == pytest.approx([0.01, 0.01])
    assert "over_baseline" not in row[0]
    assert row[1] == {"name": "third", "absent": "not installed"}
