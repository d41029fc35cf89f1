"""Several replicas take one decision: two of them, in two threads, that meet at a barrier."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from linear import network
from strategies import alike

from ampscale.core.machine import LossScaleRule
from ampscale.core.replicas import SOLO
from ampscale.core.step import Reason, init_train_state, train_step
from ampscale.core.trees import leaves, map_leaves
from ampscale.optimizers import Momentum

INF, NAN = np.inf, np.nan


class Meeting:
    """A communicator for each of several threads of one process."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=20)
        self.brought = [None] * size
        self.members = [Member(self, rank) for rank in range(size)]

    def gather(self, rank, value):
        """What each member brought, the same list for all."""
        self.brought[rank] = value
        self.barrier.wait()
        gathered = list(self.brought)
        self.barrier.wait()
        return gathered


class Member:
    """One thread's communicator; it writes down which calls it saw."""

    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.calls = meeting, rank, []

    def mean(self, tree):
        """The mean of the trees that were brought, added up in float32 and rounded once."""
        self.calls.append("mean")
        trees = self.meeting.gather(self.rank, tree)
        with np.errstate(all="ignore"):
            return map_leaves(lambda *row: np.mean(row, axis=0, dtype=np.float32).astype(row[0].dtype), *trees)

    def all_finite(self, flag):
        """True where all members brought True."""
        self.calls.append("all_finite")
        return np.asarray(all(self.meeting.gather(self.rank, flag)))


def run(inputs, max_norm=None, members=None):
    """The states and reports that each replica passes through; *inputs* are lists of gradients, by step and replica."""
    members = members or Meeting(len(inputs[0])).members
    rule = LossScaleRule(init_scale=8.0, growth_interval=2)

    def replica(rank):
        params = [np.ones(2, np.float32)]
        model = network(params)
        optimizer = Momentum(model, learning_rate=0.125)
        state, passed = init_train_state(params, optimizer, rule), []
        for step in inputs:
            given = None if step[rank] is None else np.asarray(step[rank], np.float32)
            state, report = train_step(model, optimizer, rule, state, [given], max_norm=max_norm, communicator=members[rank])
            passed.append((state, report))
        return passed

    with ThreadPoolExecutor(len(members)) as threads:
        return list(threads.map(replica, range(len(members))))


GOOD, BAD, OTHER = [1.0, 3.0], [1.0, INF], [3.0, 5.0]


def equal(left, right):
    """Whether two trees hold the same bits."""
    return all(alike(one, other) for one, other in zip(leaves(left), leaves(right), strict=True))


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-agreed-norm", "REPLICAS-same-decision")
def test_replicas_move_by_the_mean():
    """Each replica takes the step of the mean of the gradients, and reports the norm of the mean."""
    mean = [2.0, 4.0]
    alone = run([[mean]], max_norm=1.0)[0][-1]
    for state, report in (passed[-1] for passed in run([[GOOD, OTHER]], max_norm=1.0)):
        assert equal(state, alone[0])
        assert alike(report.global_norm, np.asarray(np.sqrt(np.float32(20))))


@pytest.mark.clause(
    "REPLICAS-one-flag", "REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-spreads", "REPLICAS-every-call"
)
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_an_overflow_on_one_replica_is_seen_by_all(bad):
    """Both replicas skip the step that one of them cannot take, and neither leaves the other waiting."""
    members = Meeting(2).members
    replicas = run([[GOOD, OTHER], [GOOD, [bad, 1.0]], [[-bad, 1.0], [bad, 1.0]], [GOOD, OTHER]], members=members)
    for (state, report), (other, its) in zip(*replicas, strict=True):
        assert equal(state, other)
        assert equal(report._replace(loss=None), its._replace(loss=None))
    assert [int(report.reason) for _, report in replicas[0]] == [0, 1, 1, 0]
    assert [float(report.scale) for _, report in replicas[0]] == [8, 8, 4, 2]
    assert [member.calls for member in members] == [["mean", "all_finite"] * 4] * 2


@pytest.mark.clause("REPLICAS-one-flag", "REPLICAS-same-decision")
def test_the_flags_alone_stop_all():
    """Where the gradients of one replica never reach the other, the flag still does."""

    class Apart(Member):
        def mean(self, tree):
            return tree

    meeting = Meeting(2)
    for passed in run([[BAD, GOOD]], members=[Apart(meeting, rank) for rank in range(2)]):
        assert passed[-1][1].reason == Reason.OVERFLOW


@pytest.mark.clause("REPLICAS-mean-before-check", "STEP-order")
def test_the_mean_is_taken_of_scaled_gradients():
    """The communicator is handed the gradients as the pullback gave them, before they are unscaled."""
    seen = []

    class Watching(Member):
        def mean(self, tree):
            seen.append(tree)
            return super().mean(tree)

    run([[GOOD]], members=[Watching(Meeting(1), 0)])
    assert alike(seen[0][0], np.asarray([8, 24], np.float32))


@pytest.mark.clause("REPLICAS-mean-overflows")
def test_a_mean_that_overflows_is_an_overflow():
    """Gradients that are finite on each replica, but whose mean is not, are skipped by both."""
    large = [2.0**124, 1.0]  # times a scale of 8 it is finite, but not twice
    for passed in run([[large, large], [GOOD, large]]):
        assert [int(report.reason) for _, report in passed] == [1, 0]


@pytest.mark.clause("REPLICAS-every-call", "STEP-no-gradients")
def test_a_replica_without_gradients_makes_both_calls():
    """A step without gradients is not left early."""
    members = Meeting(2).members
    for passed in run([[None, None]], members=members):
        assert passed[-1][1].reason == Reason.NO_GRADIENTS
    assert [member.calls for member in members] == [["mean", "all_finite"]] * 2


@pytest.mark.clause("REPLICAS-solo")
def test_alone_both_verbs_return_their_argument():
    """Without other replicas there is nothing to agree on."""
    tree, flag = [np.ones(2)], np.asarray(False)
    assert SOLO.mean(tree) is tree
    assert SOLO.all_finite(flag) is flag
