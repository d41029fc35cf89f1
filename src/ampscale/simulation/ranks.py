"""
Model of ranks that agree on an overflow with a collective, and of ranks that decide alone.

Nothing here is measured. The time of a message of n bytes is ``latency + n / bandwidth``, and each rank that decides alone
overflows independently of the others.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.rule import LossScaleRule
from ..core.trees import map_leaves
from ..core.validation import check_count, check_number, check_type

VECTOR = 1024  # bytes: about the size of the flags, the scaler state, and one sum of squares for each of 100 arrays


class StepCollectives(NamedTuple):
    """Number of small collectives that a system needs per step to agree on the flag and the norm; see docs/ranks-model.md."""

    system: str
    fewest: int
    most: int
    vector: int | None = None  # bytes per rank in each collective; None if there is none, or if it is a parameter of the model


SYSTEMS = (
    StepCollectives("torch 2.13.0, DDP, GradScaler", 0, 0),
    StepCollectives("ampscale.distributed", 1, 1),
    StepCollectives("torch 2.13.0, FSDP2, GradScaler", 2, 2, 4),
    StepCollectives("Megatron-core 0.16.1", 2, 3, 4),
    StepCollectives("DeepSpeed 0.19.8, ZeRO 1 and 2", 2, 4, 4),
)


@dataclass(frozen=True)
class RankModel:
    """
    Links between ranks: a message of n bytes takes ``latency + n / bandwidth`` seconds.

    The default latencies are those of the tree algorithm in NCCL's tuning model (src/graph/tuning.cc, protocol LL). The default
    bandwidths are assumptions: one 400 Gb/s network port for each rank, and NVLink 4 in one direction.

    Args:
        latency: Seconds for a message of 0 bytes between nodes; from 0 to 1e6.
        bandwidth: Bytes per second between nodes; at least 1.
        node_latency: Seconds for a message of 0 bytes within a node; from 0 to 1e6.
        node_bandwidth: Bytes per second within a node; at least 1.
        ranks_per_node: Number of ranks in each node but the last.

    Raises:
        TypeError: A value is not a number, or *ranks_per_node* is not an int.
        ValueError: A value is out of range.

    >>> RankModel(latency=10e-6).latency
    1e-05
    """

    latency: float = 5.0e-6
    bandwidth: float = 50e9
    node_latency: float = 0.6e-6
    node_bandwidth: float = 450e9
    ranks_per_node: int = 8

    def __post_init__(self) -> None:
        for name in ("latency", "node_latency"):
            check_number(getattr(self, name), name, "a number of seconds from 0 to 1e6", 0, 1e6)
        for name in ("bandwidth", "node_bandwidth"):
            check_number(getattr(self, name), name, "a finite number of bytes per second, at least 1", 1)
        check_count(self.ranks_per_node, "ranks_per_node")


@dataclass(frozen=True)
class AgreementCost:
    """
    Seconds for one collective that gives all ranks the sum of their vectors, with three algorithms.

    Args:
        flat: One rank receives the vectors of all others and sends the sum to each, one message after the other.
        tree: A binary tree adds the vectors and a second tree returns the sum. The trees ignore nodes: if there are several
            nodes, each round waits for a message between nodes.
        hierarchical: The ranks of each node use a tree within the node, and one rank of each node uses a tree between nodes.

    >>> AgreementCost(flat=1e-3, tree=1e-4, hierarchical=5e-5).tree
    0.0001
    """

    flat: float
    tree: float
    hierarchical: float


def agreement_cost(ranks: int, vector: int = VECTOR, model: RankModel = RankModel()) -> AgreementCost:
    """
    Compute the seconds that one small collective takes, without the launch and without reading its result on the host.

    Args:
        ranks: Number of ranks.
        vector: Bytes of the vector of each rank. Default: about what `ampscale.distributed` sends for 100 arrays and a norm.
        model: Links between the ranks.

    Raises:
        TypeError: *ranks* or *vector* is not an int, or *model* is not a `RankModel`.
        ValueError: *ranks* or *vector* is not positive.

    >>> cost = agreement_cost(1024)
    >>> [f"{seconds * 1e6:.1f} us" for seconds in (cost.flat, cost.tree, cost.hierarchical)]
    ['10210.0 us', '100.4 us', '73.9 us']
    """
    check_count(ranks, "ranks")
    check_count(vector, "vector")
    check_type(model, "model", RankModel)
    node_message = model.node_latency + vector / model.node_bandwidth  # seconds of a message within a node
    message = model.latency + vector / model.bandwidth  # seconds of a message between nodes
    node_ranks = min(ranks, model.ranks_per_node)
    nodes = math.ceil(ranks / model.ranks_per_node)
    return AgreementCost(
        flat=2 * ((node_ranks - 1) * node_message + (ranks - node_ranks) * message),
        tree=2 * _rounds(ranks) * (node_message if nodes == 1 else message),
        hierarchical=2 * (_rounds(node_ranks) * node_message + _rounds(nodes) * message),
    )


def _rounds(ranks: int) -> int:
    """Return the number of rounds in which a binary tree adds the vectors of *ranks* ranks: log2(ranks), rounded up."""
    return (ranks - 1).bit_length()


def disagreement_probability(ranks: int, overflow_probability: float) -> float:
    """
    Compute the probability that in a step some ranks overflow and others do not.

    Each rank overflows independently with *overflow_probability* p, so the result is ``1 - (1 - p)**ranks - p**ranks``.

    Args:
        ranks: Number of ranks.
        overflow_probability: Probability that a rank overflows in a step, from 0 to 1.

    Raises:
        TypeError: *ranks* is not an int, or *overflow_probability* is not a number.
        ValueError: An argument is out of range.

    >>> disagreement_probability(2, 0.5)
    0.5
    """
    check_count(ranks, "ranks")
    check_number(overflow_probability, "overflow_probability", "a number from 0 to 1", 0, 1)
    # The result is the same for p and 1 - p, and more precise for the smaller one.
    rarer = min(overflow_probability, 1 - overflow_probability)
    if ranks == 1 or rarer == 0:
        return 0.0
    return -math.expm1(ranks * math.log1p(-rarer)) - rarer**ranks


def steps_until_disagreement(ranks: int, overflow_probability: float) -> float:
    """
    Compute the expected number of steps up to and including the first step in which some ranks overflow and others do not.

    Args:
        ranks: Number of ranks.
        overflow_probability: Probability that a rank overflows in a step, independently of the others; from 0 to 1.

    Returns:
        1 / `disagreement_probability`; inf if the ranks never disagree.

    Raises:
        TypeError: *ranks* is not an int, or *overflow_probability* is not a number.
        ValueError: An argument is out of range.

    >>> round(steps_until_disagreement(1000, 1e-5), 1), steps_until_disagreement(1000, 0.0)
    (100.5, inf)
    """
    probability = disagreement_probability(ranks, overflow_probability)
    return 1 / probability if probability else math.inf


@dataclass(frozen=True, eq=False)
class Drift:
    """
    Scales of ranks that decided alone.

    Args:
        scales: float64 array of shape (distinct,): the distinct scales after the last step, in descending order.
        ranks: int64 array of shape (distinct,): the number of ranks with each scale.
        disagreements: Number of steps in which some ranks overflowed and others did not.
        first_disagreement: First of these steps, counted from 0; None if the ranks never disagreed.

    >>> Drift(np.array([8.0, 4.0]), np.array([3, 1]), disagreements=1, first_disagreement=0).scales.size
    2
    """

    scales: np.ndarray
    ranks: np.ndarray
    disagreements: int
    first_disagreement: int | None


def simulate_drift(rule: LossScaleRule, ranks: int, overflow_probability: float, steps: int, seed: int = 0) -> Drift:
    """
    Simulate ranks that update their scales with *rule* and without a collective.

    Each rank overflows independently with the same probability in each step, at any scale. If the published scaler would raise
    an error, the rank keeps its state.

    Args:
        rule: Constants of the scaler of each rank.
        ranks: Number of ranks.
        overflow_probability: Probability that a rank overflows in a step, from 0 to 1.
        steps: Number of steps.
        seed: Seed of ``numpy.random.default_rng``, which determines the result.

    Raises:
        TypeError: *rule* is not a `LossScaleRule`, or another argument is not a number of the right type.
        ValueError: An argument is out of range.

    >>> from ampscale import presets
    >>> drift = simulate_drift(presets.torch(), ranks=1000, overflow_probability=1e-3, steps=100)
    >>> drift.scales.tolist(), drift.ranks.tolist()
    ([65536.0, 32768.0, 16384.0], [913, 84, 3])
    """
    check_type(rule, "rule", LossScaleRule)
    check_count(steps, "steps")
    check_count(seed, "seed", low=0)
    disagreement_probability(ranks, overflow_probability)  # checks both arguments
    rng = np.random.default_rng(seed)
    disagreements = list[int]()
    state = map_leaves(lambda value: np.full(ranks, value), rule.init(like=np.empty(0)))
    for step in range(steps):
        finite = rng.random(ranks) >= overflow_probability
        if finite.any() and not finite.all():
            disagreements.append(step)
        state = rule.update(state, finite)
    scales, counts = np.unique(np.asarray(state.scale, np.float64), return_counts=True)
    first_disagreement = disagreements[0] if disagreements else None
    return Drift(scales[::-1], counts[::-1], len(disagreements), first_disagreement)
