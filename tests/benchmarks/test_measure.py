"""How times are taken and compared."""

import random

import measure
import pytest
from measure import Absent, Contender, cells, in_turn, quartiles, ratio


class Clock:
    """A clock that calls move on, so that no test depends on the machine."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def takes(self, seconds):
        def run():
            self.now += seconds() if callable(seconds) else seconds

        return run


@pytest.fixture
def clock(monkeypatch):
    """In place of the machine's."""
    clock = Clock()
    monkeypatch.setattr(measure.time, "perf_counter", clock)
    return clock


@pytest.mark.parametrize("seconds", [0.01, 1e-6])
def test_what_is_put_back_is_not_timed(clock, seconds):
    """A reset that takes a hundred times as long changes nothing, also where a short call is repeated."""
    (taken,) = in_turn([Contender("a", clock.takes(seconds), clock.takes(100 * seconds))], seconds=100 * seconds)
    assert list(taken.values()) == pytest.approx([seconds] * len(taken))


def test_a_short_call_is_repeated_within_a_sample(clock):
    """And its sample is the time of one call."""
    calls = []

    def run():
        calls.append(1)
        clock.now += 1e-6

    (taken,) = in_turn([Contender("a", run)], seconds=0.01)
    assert len(calls) >= 400 * len(taken)
    assert list(taken.values()) == pytest.approx([1e-6] * len(taken))


def test_each_has_its_turn_in_each_round_and_another_is_first(clock):
    """So that none always follows the same one."""
    order = []

    def named(name):
        def run():
            order.append(name)
            clock.now += 0.01

        return Contender(name, run)

    in_turn([named(name) for name in "abc"], seconds=0.3)
    rounds = ["".join(order[at : at + 3]) for at in range(6, len(order), 3)]  # after two rounds that do not count
    assert rounds[:4] == ["abc", "bca", "cab", "abc"]


def test_at_least_seven_samples_and_three_of_a_slow_rival(clock):
    """As many as the others, where a target needs it; ours is never spared."""
    contenders = [
        Contender("quick", clock.takes(0.001)),
        Contender("slow", clock.takes(2.0)),
        Contender("c", clock.takes(2.0), kind="ours"),
    ]
    assert [len(taken) for taken in in_turn(contenders, seconds=0.001)] == [7, 3, 7]
    assert [len(taken) for taken in in_turn(contenders, seconds=0.001, thorough=True)] == [7, 7, 7]


def test_no_more_samples_than_needed(clock):
    """However much time there is."""
    (taken,) = in_turn([Contender("a", clock.takes(0.001))], seconds=100.0)
    assert len(taken) == measure.MOST


def test_without_time_each_is_called_once(clock):
    """Which tells that it runs."""
    assert in_turn([Contender("a", clock.takes(1.0)), Contender("b", clock.takes(2.0))], seconds=None) == [{0: 1.0}, {0: 2.0}]


def test_a_ratio_is_of_medians_and_its_spread_of_rounds():
    """What slows one round slows both, and is not in the spread."""
    found = ratio({0: 2.0, 1: 20.0, 2: 2.2}, {0: 1.0, 1: 10.0, 2: 1.1})
    assert found["ratio"] == pytest.approx(2.0)
    assert found["quartiles"] == pytest.approx([2.0, 2.0])


def test_a_ratio_takes_all_rounds_of_both():
    """A slow contender is not in each."""
    assert ratio({0: 1.0, 1: 2.0, 2: 3.0}, {1: 1.0}) == {"ratio": 2.0, "quartiles": [2.0, 2.0]}
    assert ratio(dict(enumerate([1.0, 2.0, 3.0, 4.0, 5.0])), dict.fromkeys(range(5), 1.0)) == {
        "ratio": 3.0,
        "quartiles": [2.0, 4.0],
    }


def test_quartiles_are_those_of_the_sample():
    """Inclusive, as NumPy's are."""
    assert quartiles([1, 2, 3, 4, 5]) == [2, 4]
    assert quartiles([7]) == [7, 7]


def test_the_floor_is_the_quickest_of_those_there_are(clock):
    """Everybody is compared with it."""
    times = {"ampscale": 0.03, "max": 0.02, "dot": 0.01}
    kinds = {"ampscale": "ours"}
    found = cells([Contender(name, clock.takes(taken), kind=kinds.get(name, "floor")) for name, taken in times.items()], 0.1)
    assert [cell["over_floor"]["ratio"] for cell in found] == pytest.approx([3, 2, 1])


def test_ours_has_its_ratio_to_each(clock):
    """Below 1 where it is ahead; one that cannot be measured stands there with its reason."""
    ours, rival = Contender("ampscale", clock.takes(0.01), kind="ours"), Contender("other", clock.takes(0.04))
    found = cells([ours, Absent("third", "not installed"), rival], 0.1)
    assert [cell["name"] for cell in found] == ["ampscale", "third", "other"]
    assert found[0]["over"]["other"]["ratio"] == pytest.approx(0.25)
    assert set(found[0]["over"]) == {"other"}
    assert "over_floor" not in found[0]
    assert found[1] == {"name": "third", "absent": "not installed"}


def test_noise_that_comes_in_waves_is_in_the_times_and_not_in_the_ratio(clock):
    """That is why contenders take turns."""
    draw = random.Random(0)
    slowdown = [draw.choice([1, 3]) for _ in range(1000)]
    calls = {"a": 0, "b": 0}

    def noisy(name, seconds):
        def run():
            clock.now += seconds * slowdown[calls[name]]
            calls[name] += 1

        return Contender(name, run, kind="ours" if name == "a" else "rival")

    found = cells([noisy("a", 0.002), noisy("b", 0.004)], 10)
    assert found[0]["quartiles"][1] / found[0]["quartiles"][0] == pytest.approx(3)
    assert found[0]["over"]["b"]["quartiles"] == pytest.approx([0.5, 0.5])
