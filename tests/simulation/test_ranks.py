"""The model of ranks: the time of a collective, the probability of disagreement, and simulated drift."""

import math
from dataclasses import astuple
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import ampscale
from ampscale import LossScaleRule, presets
from ampscale.simulation import RankModel, agreement_cost, disagreement_probability, simulate_drift, steps_until_disagreement
from ampscale.simulation.ranks import SYSTEMS, VECTOR

MODEL = RankModel(latency=100.0, bandwidth=10.0, node_latency=1.0, node_bandwidth=10.0, ranks_per_node=4)
WITHIN_NODE, BETWEEN_NODES = 3.0, 102.0  # seconds for a message of 20 bytes within a node, and between nodes


@pytest.mark.parametrize(
    ("ranks", "flat", "tree", "hierarchical"),
    [
        (1, 0, 0, 0),
        (2, 2 * WITHIN_NODE, 2 * WITHIN_NODE, 2 * WITHIN_NODE),
        (3, 4 * WITHIN_NODE, 4 * WITHIN_NODE, 4 * WITHIN_NODE),
        (4, 6 * WITHIN_NODE, 4 * WITHIN_NODE, 4 * WITHIN_NODE),
        (5, 6 * WITHIN_NODE + 2 * BETWEEN_NODES, 6 * BETWEEN_NODES, 4 * WITHIN_NODE + 2 * BETWEEN_NODES),
        (8, 6 * WITHIN_NODE + 8 * BETWEEN_NODES, 6 * BETWEEN_NODES, 4 * WITHIN_NODE + 2 * BETWEEN_NODES),
        (12, 6 * WITHIN_NODE + 16 * BETWEEN_NODES, 8 * BETWEEN_NODES, 4 * WITHIN_NODE + 4 * BETWEEN_NODES),
        (100_000, 6 * WITHIN_NODE + 2 * 99_996 * BETWEEN_NODES, 34 * BETWEEN_NODES, 4 * WITHIN_NODE + 30 * BETWEEN_NODES),
    ],
)
def test_cost_is_the_time_of_messages_one_after_another(ranks, flat, tree, hierarchical):
    """A node has four ranks. Messages within a node take less time than messages between nodes."""
    assert astuple(agreement_cost(ranks, 20, MODEL)) == pytest.approx((flat, tree, hierarchical))


def test_documentation_lists_the_collectives_of_each_system():
    """The line of a system starts with the minimum and the maximum number of collectives in a step."""
    lines = (Path(__file__).parents[2] / "docs/ranks-model.md").read_text().splitlines()
    listed = {line.split("  ")[-1]: line.split()[0] for line in lines if "  " in line}
    for system, minimum, maximum, _ in SYSTEMS:
        assert listed[system] == (str(maximum) if minimum == maximum else f"{minimum}-{maximum}")


def test_lowest_bandwidth_is_one_byte_per_second():
    """Without latencies, each message of one byte takes a second within a node, and between nodes."""
    for ranks_per_node in (1, 2):
        assert agreement_cost(2, 1, RankModel(0, 1, 0, 1, ranks_per_node)).flat == 2


def test_default_vector_is_about_what_a_communicator_sends():
    """The gradients are 100 sharded arrays, and the norm is needed. The difference is less than 20 percent."""
    pytest.importorskip("mpi4py")
    sizes = []

    class Recorder(ampscale.distributed.MPI):
        def _sum(self, vector):
            sizes.append(vector.nbytes)
            return super()._sum(vector)

    gradients = [np.ones(3, np.float32)] * 100
    Recorder(gradients="sharded").agree(np.bool_(True), np.float32(8), gradients, norm=True)
    assert sizes == [pytest.approx(VECTOR, rel=0.2)]


@pytest.mark.parametrize(
    "probability", [Fraction(0), Fraction(1, 1000), Fraction(1, 3), Fraction(1, 2), Fraction(7, 8), Fraction(1)]
)
@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_probability_is_the_sum_over_all_outcomes_that_disagree(ranks, probability):
    """The sum is computed exactly, in fractions."""
    outcomes = (outcome for outcome in product((True, False), repeat=ranks) if len(set(outcome)) == 2)
    exact = sum(math.prod(probability if overflow else 1 - probability for overflow in outcome) for outcome in outcomes)
    assert disagreement_probability(ranks, float(probability)) == pytest.approx(float(exact), rel=1e-12)
    assert steps_until_disagreement(ranks, float(probability)) == pytest.approx(float(1 / exact) if exact else math.inf)


def test_probability_is_precise_for_rare_and_for_almost_certain_overflows():
    """A sum of floats would lose most digits."""
    assert disagreement_probability(100_000, 1e-18) == pytest.approx(1e-13, rel=1e-12)
    assert disagreement_probability(8, 1 - 2.0**-40) == pytest.approx(2.0**-37, rel=1e-10)


@pytest.mark.parametrize(("ranks", "probability"), [(2, 0.1), (64, 1e-3), (1000, 1e-4)])
def test_simulation_disagrees_as_often_as_the_closed_form(ranks, probability):
    """The number of steps in which ranks disagree is within four standard deviations of its mean."""
    steps, share = 2000, 1 / steps_until_disagreement(ranks, probability)
    drift = simulate_drift(presets.torch(), ranks, probability, steps, seed=1)
    assert abs(drift.disagreements - steps * share) < 4 * math.sqrt(steps * share * (1 - share))


def test_mean_of_the_first_disagreements_is_the_closed_form():
    """The mean of 100 runs is within four standard deviations; the standard deviation of a run is less than the mean."""
    expected = steps_until_disagreement(32, 0.03)
    first = [simulate_drift(presets.static(), 32, 0.03, 25, seed).first_disagreement + 1 for seed in range(100)]
    assert abs(np.mean(first) - expected) < 4 * expected / math.sqrt(100)


@pytest.mark.parametrize(
    "rule",
    [
        presets.torch(8.0, growth_interval=3),
        presets.megatron(2.0**10),
        presets.deepspeed(4.0, hysteresis=1),  # the published scaler raises errors
        presets.fairseq_tolerance(),
        LossScaleRule(init_scale=8.0, delayed_update=True),
    ],
    ids=["torch", "megatron", "deepspeed", "fairseq_tolerance", "delayed update"],
)
def test_each_rank_has_the_scale_of_a_rule_of_its_own(rule):
    """The expected flags come from a generator with the default seed, 0, and each rank is updated separately."""
    drift, rng = simulate_drift(rule, 20, 0.3, 30), np.random.default_rng(0)
    states = [rule.init(like=0.0) for _ in range(20)]
    for _ in range(30):
        flags = (rng.random(20) >= 0.3).tolist()
        states = [rule.update(state, flag) for state, flag in zip(states, flags, strict=True)]
    scales, counts = np.unique([state.scale for state in states], return_counts=True)
    assert drift.scales.tolist() == scales[::-1].tolist()
    assert drift.ranks.tolist() == counts[::-1].tolist()


@pytest.mark.parametrize(("probability", "scale"), [(0.0, 16.0), (1.0, 1.0)])
def test_equal_ranks_keep_one_scale(probability, scale):
    """All ranks overflow, or none."""
    drift = simulate_drift(presets.torch(8.0, growth_interval=3), 50, probability, 3)
    assert (drift.scales.tolist(), drift.ranks.tolist()) == ([scale], [50])
    assert (drift.disagreements, drift.first_disagreement) == (0, None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: agreement_cost(0), ValueError, "ranks must be an int from 1 to .*, got 0"),
        (lambda: agreement_cost(8, vector=0), ValueError, "vector must be an int from 1 to .*, got 0"),
        (lambda: agreement_cost(8, model=None), TypeError, "model must be a RankModel, got None"),
        (lambda: RankModel(latency=-1), ValueError, "^latency must be a number of seconds from 0 to 1e6, got -1"),
        (lambda: RankModel(node_latency="1"), TypeError, "node_latency must be a number of seconds .*, got '1'"),
        (lambda: RankModel(bandwidth=0.0), ValueError, "^bandwidth must be a finite number of bytes per second, at least 1, got"),
        (lambda: RankModel(node_bandwidth=math.inf), ValueError, "node_bandwidth must be a finite number .*, got inf"),
        (lambda: RankModel(ranks_per_node=0), ValueError, "ranks_per_node must be an int from 1 to .*, got 0"),
        (lambda: steps_until_disagreement(8, 1.5), ValueError, "overflow_probability must be a number from 0 to 1, got 1.5"),
        (lambda: disagreement_probability(8, -0.5), ValueError, "from 0 to 1, got -0.5"),
        (lambda: disagreement_probability("8", 0.5), TypeError, "ranks must be an int .*, got '8'"),
        (lambda: simulate_drift(None, 8, 0.5, 1), TypeError, "rule must be a LossScaleRule, got None"),
        (lambda: simulate_drift(presets.torch(), 8, 0.5, 0), ValueError, "steps must be an int from 1 to .*, got 0"),
        (lambda: simulate_drift(presets.torch(), 8, 0.5, 1, seed=-1), ValueError, "seed must be an int from 0 to .*, got -1"),
        (lambda: simulate_drift(presets.torch(), 8, 2, 1), ValueError, "from 0 to 1, got 2"),
    ],
)
def test_invalid_argument_is_rejected(call, error, message):
    """The message contains the expectation and the value."""
    with pytest.raises(error, match=message):
        call()
