"""`ampscale simulate --ranks`: its tables, its JSON, its picture and its errors."""

import re

import numpy as np
import pytest
from cli.runner import Runner
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ampscale import presets
from ampscale.cli.ranks import ROWS
from ampscale.cli.ranks_plot import figure_of
from ampscale.cli.scale_plot import LOOK
from ampscale.cli.simulate import simulate
from ampscale.simulation import RankModel, agreement_cost, simulate_drift, steps_until_disagreement

RUNNER = Runner(simulate)
printed, report, error = RUNNER.printed, RUNNER.report, RUNNER.error


def test_first_lines_name_the_model_and_its_parameters():
    """The first line states that nothing is measured."""
    options = ("--latency", "2e-5", "--bandwidth", "1e9", "--node-latency", "0", "--node-bandwidth", "2e12", "--node", "4")
    assert printed("--ranks", 16, *options, "--vector", 1, "--probability", "2**-10")[:5] == [
        "Model, not a measurement. A message takes latency + bytes / bandwidth:",
        "  between nodes        20 us + bytes / 1 GB/s",
        "  within a node        0 us + bytes / 2000 GB/s",
        "  node, vector         4 ranks, 1 byte",
        "  overflow             in each step with probability 9.76562e-4 on each rank",
    ]


@pytest.mark.parametrize(("probability", "text"), [(0, "0"), (1, "1"), (1e-5, "1e-5"), (0.25, "2.5e-1"), (1e-12, "1e-12")])
def test_probabilities_are_printed_in_scientific_notation(probability, text):
    """The probability that two ranks disagree is 2 p (1 - p)."""
    lines = printed("--ranks", 2, "--probability", probability)
    assert lines[4].endswith(f" with probability {text} on each rank")
    disagreement = {0: "0", 1: "0", 1e-5: "2e-5", 0.25: "3.75e-1", 1e-12: "2e-12"}
    assert lines[8].split()[-2] == disagreement[probability]


@pytest.mark.parametrize("ranks", [2, 1_000_000])
@pytest.mark.parametrize("options", [(), ("--probability", "1e-9"), ("--latency", "1e6", "--bandwidth", "1")])
def test_output_fits_80_columns(ranks, options):
    """The options include those with the longest numbers in the output."""
    assert max(map(len, printed("deepspeed_fp16_optimizer", "--ranks", ranks, *options, "--steps", 2))) <= 80


def test_table_has_a_row_for_the_ranks_and_for_each_power_of_ten():
    """If --ranks is a power of ten, its row is not repeated."""
    for ranks in (64, 1000):
        rows = [line.split()[0] for line in printed("--ranks", ranks) if re.match(r" +[\d,]+ .*s .*s .*s ", line)]
        assert rows == [f"{row:,}" for row in sorted({*ROWS, ranks})]


def test_json_has_the_numbers_of_the_library():
    """Costs, expected steps and the simulated ranks are those of the functions. Times are in seconds."""
    result = report("--ranks", 24, "--node", 6, "--vector", 10, "--probability", 0.01)
    cost = agreement_cost(24, 10, RankModel(ranks_per_node=6))
    assert [row["ranks"] for row in result["costs"]] == [8, 24, 100, 1000, 10_000, 100_000]
    row = result["costs"][1]
    assert (row["flat"], row["tree"], row["hierarchical"]) == (cost.flat, cost.tree, cost.hierarchical)
    assert row["steps_until_disagreement"] == steps_until_disagreement(24, 0.01)
    drift = simulate_drift(presets.torch(), 24, 0.01, 100, 0)
    assert (result["scales"], result["ranks_with_scale"]) == (drift.scales.tolist(), drift.ranks.tolist())
    assert (result["disagreements"], result["first_disagreement"]) == (drift.disagreements, drift.first_disagreement)


def test_json_of_ranks_that_never_disagree_has_inf_as_text():
    """JSON has no infinity."""
    result = report("--ranks", 8, "--probability", 0)
    assert {row["steps_until_disagreement"] for row in result["costs"]} == {"inf"}
    assert result["first_disagreement"] is None


def test_help_describes_every_key_of_the_json():
    """The keys within "model" are not listed there, since they are the names of options."""
    document = report("--ranks", 8)
    text = RUNNER.invoke("--help").stdout.partition("With --ranks and --json:")[2].partition("Options:")[0]
    keys = {*document, *document["costs"][0], *document["systems"][0]}
    assert keys <= set(text.replace(",", " ").split())


def test_other_systems_send_four_bytes_in_each_collective():
    """The times are those of the smallest and the largest number of collectives in a step."""
    systems = {row["system"].split()[0]: row for row in report("--ranks", 64)["systems"]}
    assert systems["ampscale.distributed"]["seconds"] == [agreement_cost(64).hierarchical] * 2
    assert systems["Megatron-core"]["collectives"] == [2, 3]
    collective = agreement_cost(64, 4).hierarchical
    assert systems["Megatron-core"]["seconds"] == [2 * collective, 3 * collective]


def test_rule_steps_and_seed_determine_the_simulated_scales():
    """Eight scales are printed at most."""
    arguments = ("torch:growth_interval=1,init_scale=8", "--ranks", 100, "--probability", 0.3)
    text = " ".join(printed(*arguments, "--steps", 40, "--seed", 3)[-4:])
    scales = report(*arguments, "--steps", 40, "--seed", 3)["scales"]
    assert f"{len(scales)} distinct scales: " in text
    assert text.count("2^") == 8
    assert f"and {len(scales) - 8} more." in text
    assert report(*arguments, "--steps", 40, "--seed", 4)["scales"] != scales


def test_picture_has_a_line_for_each_algorithm(tmp_path):
    """A second plot has the steps until ranks disagree. All axes are logarithmic, and the number of ranks is marked."""
    lines = printed("--ranks", 512, "--picture", tmp_path / "ranks.png")
    assert lines[-1] == f"Picture: {tmp_path / 'ranks.png'}"
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
    with rc_context(LOOK):
        figure = figure_of(RankModel(), vector=904, ranks=512, overflow_probability=1e-4)
    costs, steps = figure.axes
    assert [line.get_label() for line in costs.get_lines()[:3]] == ["flat", "tree", "hierarchical"]
    counts, disagreement = steps.get_lines()[0].get_data()
    assert (counts[0], counts[-1]) == (2, 100_000)
    assert disagreement[-1] == pytest.approx(steps_until_disagreement(100_000, 1e-4))
    assert {axis.get_scale() for axes in (costs, steps) for axis in (axes.xaxis, axes.yaxis)} == {"log"}
    assert [axes.get_lines()[-1].get_xdata()[0] for axes in (costs, steps)] == [512, 512]


@pytest.mark.parametrize(("ranks", "probability"), [(1_000_000, 1.23456e-12), (2, 0.0)])
def test_nothing_in_the_picture_is_cut_off(ranks, probability):
    """The two axes do not overlap. With a probability of 0, the ranks never disagree."""
    with rc_context(LOOK):
        figure = figure_of(RankModel(latency=1e6, bandwidth=1, ranks_per_node=1_000_000), 2**31 - 1, ranks, probability)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    assert all(np.greater_equal(box.min, 0).all() and np.less_equal(box.max, figure.bbox.max).all() for box in boxes)
    assert boxes[0].x1 < boxes[1].x0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--ranks 1", "Invalid value for '--ranks': 1 is not in the range 2<=x<=1000000"),
        ("--ranks 8 --node 0", "Invalid value for '--node': 0 is not in the range 1<=x<=1000000"),
        ("--ranks 8 --latency -1", "--latency must be a number of seconds from 0 to 1e6, got -1"),
        ("--ranks 8 --node-bandwidth 0", "--node-bandwidth must be a finite number of bytes per second, at least 1, got 0"),
        ("--ranks 8 --probability 2", "--probability must be a number from 0 to 1, got 2"),
        ("--ranks 8 --trace x", "--ranks cannot be combined with --trace"),
        ("torch --latency 1 --trace x", "--latency requires --ranks"),
        ("--ranks 8 --all", "--ranks cannot be combined with --every, --events or --all"),
        ("--trace x", "Missing argument 'RULE'; see simulate --help"),
    ],
)
def test_usage_error_is_one_line(arguments, message):
    """The line states what is expected."""
    assert error(*arguments.split()) == f"simulate: {message}\n"
