"""Plot of scales: nothing is lost, covered or cut off, for any number of rules and steps."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ampscale import LossScaleRule, presets
from ampscale.cli.scale_plot import GRID, LOOK, Heights, crosses, draw, figure_of
from ampscale.cli.step_line import CORNERS, corners
from ampscale.simulation.simulate import Trajectory, simulate
from ampscale.simulation.traces import from_flags, from_model, from_string


def trajectory_of(scales, finite=None, raised_at=None):
    """Return a trajectory with these scales."""
    scales = np.asarray(scales, "f8")
    counts = np.zeros(scales.size, "i4")
    return Trajectory(scales, counts, counts, np.ones(scales.size - 1, bool) if finite is None else finite, raised_at)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf]), min_size=1, max_size=50))
def test_line_has_a_corner_at_each_change(scales):
    """The corners determine all scales of the trajectory, and none is redundant."""
    positions, heights = corners(np.array(scales))
    assert np.repeat(heights, np.diff([*positions, len(scales)])).tolist() == scales
    assert all(one != other for one, other in pairwise(heights))


@pytest.mark.parametrize("steps", [3000, 99_999])
def test_line_of_many_steps_shows_all_extremes(steps):
    """Each part of the steps has a corner at its smallest and at its largest scale, even if only one step has this scale."""
    scales = np.where(np.arange(steps) % 2, 2.0, 4.0)
    scales[steps // 3], scales[-1] = 2.0**60, 2.0**-60
    positions, bands = corners(scales)
    assert positions.size == bands.size == CORNERS
    for start, stop, least, largest in zip(positions[::2], [*positions[2::2], steps], bands[::2], bands[1::2], strict=True):
        assert (least, largest) == (scales[start:stop].min(), scales[start:stop].max())


def test_every_overflow_has_a_cross():
    """The step at which the published scaler raises an error has a cross, too."""
    trajectory = simulate(presets.deepspeed(init_scale=4.0, hysteresis=1), from_string("..xx..x.x..."))
    assert trajectory.raised_at is not None
    assert crosses(trajectory, Heights([trajectory]), 12).tolist() == [2, 3, 6]


def test_overlapping_crosses_are_thinned_out():
    """Fewer crosses are drawn than there are overflows, but each overflow has a cross near it in its column."""
    trajectory = simulate(presets.torch(growth_interval=5), from_model(200_000, 2.0**12, noise=2.0))
    heights = Heights([trajectory])
    drawn_at = crosses(trajectory, heights, 200_000)
    all_at = np.flatnonzero(~trajectory.finite)
    assert set(drawn_at) <= set(all_at)
    assert 100 < drawn_at.size < 2000 < all_at.size
    columns, rows = GRID
    drawn_columns = drawn_at * columns // 200_000
    drawn_heights = heights.of(trajectory.scales[drawn_at], 0)
    cross_height = (heights.most - heights.least) / rows
    for step in all_at[::7]:
        heights_in_column = drawn_heights[drawn_columns == step * columns // 200_000]
        assert np.abs(heights_in_column - heights.of(trajectory.scales[step], 0)).min() <= cross_height


def test_zero_and_infinity_have_their_own_heights():
    """Zero is below and infinity above all other scales, and both are labeled."""
    heights = Heights([trajectory_of([0.0, 2.0**-3, 2.0**5, np.inf])])
    positions = heights.of(np.array([0.0, 2.0**-3, 2.0**5, np.inf]), 0)
    assert all(one < other for one, other in pairwise(positions))
    names = list(heights.ticks().values())
    assert (names[-2:], heights.least, heights.most) == (["0", "inf"], positions[0], positions[-1])
    assert "0" not in Heights([trajectory_of([1.0, 2.0])]).ticks().values()


@pytest.mark.parametrize("rules", [2, 5, 12])
def test_equal_scales_are_drawn_side_by_side(rules):
    """Adjacent lines are at least 1.1 points apart, and all lines lie within 0.6 of the height of a factor of two."""
    heights = Heights([trajectory_of([2.0**10, 2.0**18])] * rules)
    positions = [float(heights.of(np.array(2.0**12), index)) for index in range(rules)]
    distances = heights.power * -np.diff(positions)
    assert np.all(distances >= 1.1 - 1e-9)
    assert positions[0] - positions[-1] <= 0.6
    assert np.mean(positions) == pytest.approx(12)


RULES = {f"torch:init_scale=2**{power},growth_interval=2000": LossScaleRule(init_scale=2.0**power) for power in range(4, 30)}
ODD = {
    "zero-and-infinity": [trajectory_of([2.0**-149, 0.0, 0.0]), trajectory_of([2.0**127, np.inf])],
    "nothing-but-zero": [trajectory_of([0.0])],
    "nothing-but-infinity": [trajectory_of([np.inf, np.inf])],
    "no-steps": [trajectory_of([2.0**16])] * 2,
    "no-power-of-two": [trajectory_of([3.0, 3.3, 3.63])],
    "dense": [simulate(presets.torch(growth_interval=1), from_flags(np.arange(30_000) % 2 == 0))] * 3,
    "an-error": [trajectory_of([2.0, 1.0], np.array([False]), raised_at=1), trajectory_of([2.0, 1.0, 1.0])],
}


@pytest.mark.parametrize("name", ODD)
def test_every_trajectory_can_be_drawn(name, tmp_path):
    """Matplotlib neither warns nor interprets underscores and dollar signs in names."""
    path = tmp_path / "odd.png"
    draw({f"_{index}$name$_": trajectory for index, trajectory in enumerate(ODD[name])}, [-1, 0], path)
    assert path.stat().st_size > 2000


def boxes(artists, canvas):
    """Return the bounding boxes of artists in pixels: left, bottom, right, top."""
    return [artist.get_window_extent(canvas.get_renderer()).extents for artist in artists]


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "repeats"), [(1, 1), (2, 10), (12, 1), (26, 10)])
def test_texts_neither_overlap_nor_leave_the_picture(rules, repeats):
    """The title is above the marked steps, and the legend is below the axes."""
    trace = from_string(repeats * "....x....x.x.....xx......x........")
    trajectories = {name: simulate(rule, trace) for name, rule in list(RULES.items())[:rules]}
    marks = list(range(-1, rules - 2))
    with rc_context(LOOK):
        figure = figure_of(trajectories, marks)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        (axes,) = figure.axes
        left, bottom, right, top = figure.get_tightbbox(canvas.get_renderer()).extents
        assert left >= 0 <= bottom
        assert right <= figure.get_size_inches()[0]
        assert top <= figure.get_size_inches()[1]
        numbers = boxes(axes.texts, canvas)
        assert len(numbers) == len(marks)
        for one, other in combinations(numbers, 2):
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        ((_, title, _, _),) = boxes([axes._left_title], canvas)
        assert all(box[3] <= title for box in numbers)
        for _, _, _, legend in boxes(figure.legends, canvas):
            assert legend <= boxes([axes.xaxis.label], canvas)[0][1]


def test_legend_has_every_rule():
    """An entry has the number and the name of a rule, and the step of its error."""
    trajectories = dict(zip(("_one", "b$"), ODD["an-error"], strict=True))
    with rc_context(LOOK):
        (legend,) = figure_of(trajectories, []).legends
    assert [text.get_text() for text in legend.get_texts()] == ["1  _one, raises at step 1", r"2  b\$"]
