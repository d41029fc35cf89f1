"""
Collective operations that a loss scaler requires, and their implementation for a single replica.

Spec: REPLICAS-mean-before-check, REPLICAS-one-flag, REPLICAS-same-decision, REPLICAS-single.
"""

from collections import Counter
from typing import Any, NamedTuple, Protocol

from ..parsing import cut
from .norms import LiftedNorm
from .trees import leaves
from .typing import Flag, Tree


class RankError(RuntimeError):
    """
    Error that is raised if ranks differ in a setting or do not respond. Its message names them, and no rank changes its scale.

    >>> raise RankError("max_norm differs: 2.0 on rank 1; 1.0 on ranks 0, 2, 3")
    Traceback (most recent call last):
    ampscale.core.replicas.RankError: max_norm differs: 2.0 on rank 1; 1.0 on ranks 0, 2, 3
    """


def rank_names(ranks: list[int]) -> str:
    """Return text such as "ranks 0, 2", with at most eight numbers."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"ranks {', '.join(map(str, ranks[:8]))}{more}"


def rank_difference(name: str, values: list[str], ranks: list[int]) -> str:
    """Return a sentence that names the ranks with each value, the most frequent value last."""
    counts = Counter(values)
    groups = sorted(counts, key=lambda value: (counts[value], -values.index(value)))
    holders_of = {value: [rank for rank, other in zip(ranks, values, strict=True) if other == value] for value in groups}
    return f"{name} differs: " + "; ".join(f"{cut(value, 300)} on {rank_names(holders)}" for value, holders in holders_of.items())


class Agreement(NamedTuple):
    """
    Result of `Communicator.agree`, equal on all ranks.

    Args:
        finite: True if the gradients of all ranks are finite; bool, shape ().
        has_gradients: True if any rank has a gradient: a bool, or a bool array of shape ().
        norm: Global norm of the gradients of all ranks, as the pair `value` and `lift`: ``norm.value / norm.lift`` is the norm,
            and `lift` a power of two. None if not requested, or if every rank has all gradients.
    """

    finite: Flag
    has_gradients: bool | Flag
    norm: LiftedNorm | None = None


class Communicator(Protocol):
    """
    Interface of two collective operations, `mean` and `agree`, and of `check_same`, which compares settings.

    All ranks must call `mean` and `agree` in the same order, even ranks whose gradients are not finite.

    Subclassing is not required: every object with these three methods is a communicator.

    >>> class Doubling:  # stands for two ranks with equal gradients
    ...     def mean(self, tree):
    ...         return [(array + array) / 2 for array in tree]
    ...
    ...     def agree(self, finite, state, gradients, *, norm=False):
    ...         return ampscale.distributed.Agreement(finite & finite, len(gradients) > 0)
    ...
    ...     def check_same(self, **settings):
    ...         pass
    >>> Doubling().mean([np.float32([1.0, 3.0])])
    [array([1., 3.], dtype=float32)]
    """

    def mean(self, tree: Tree) -> Tree:
        """Return the mean of each array over all replicas. A non-finite value on one replica makes the mean non-finite."""

    def agree(self, finite: Flag, state: Tree, gradients: Tree, *, norm: bool = False) -> Agreement:
        """
        Combine the finite flags of all ranks, and the norms of their gradients, in one small collective.

        Args:
            finite: Flag of this rank's gradients; bool, shape ().
            state: Loss scale of this rank, or a dict with the scale, the counts and other numbers: arrays of shape () or (1,).
                All ranks must have the same values.
            gradients: Unscaled gradients of this rank; there may be none.
            norm: True if the global norm is needed.

        Raises:
            RankError: The ranks differ in *state* or in a setting, or a rank does not respond.
        """

    def check_same(self, **settings: Any) -> None:
        """
        Compare, now or in the next collective, settings that must be equal on all ranks, such as the rule.

        Args:
            settings: Values whose `repr` shows all differences.

        Raises:
            RankError: The ranks differ in a setting.
        """


class SingleReplica:
    """
    Communicator of a run with one replica.

    >>> SingleReplica().agree(True, 1024.0, [np.float32([1.0])])
    Agreement(finite=True, has_gradients=True, norm=None)
    """

    def __repr__(self) -> str:
        """Return "SingleReplica()", which signatures show as a default."""
        return "SingleReplica()"

    def mean(self, tree: Tree) -> Tree:
        """Return *tree* itself."""
        return tree

    def agree(self, finite: Flag, state: Tree, gradients: Tree, *, norm: bool = False) -> Agreement:
        """Return an `Agreement` with *finite* itself and without a norm."""
        return Agreement(finite, len(leaves(gradients)) > 0)

    def check_same(self, **settings: Any) -> None:
        """Do nothing."""


SINGLE_REPLICA = SingleReplica()
