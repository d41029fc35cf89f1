"""Several replicas take one decision: two of them, in two threads that wait for each other."""

import numpy as np
import pytest
from linear import network
from ranks import on_ranks
from strategies import alike, same

from ampscale.core.replicas import SINGLE_REPLICA
from ampscale.core.rule import LossScaleRule
from ampscale.core.step import StepStatus, init_train_state, train_step
from ampscale.optimizers import Momentum

INF, NAN = np.inf, np.nan


class Watched:
    """A communicator that writes down what it was asked for."""

    def __init__(self, communicator):
        self.communicator, self.calls, self.trees = communicator, [], []

    def mean(self, tree):
        """The mean, of which NumPy's warnings do not matter."""
        self.calls.append("mean")
        self.trees.append(tree)
        with np.errstate(all="ignore"):
            return self.communicator.mean(tree)

    def all_finite(self, flag):
        """The common flag."""
        self.calls.append("all_finite")
        return self.communicator.all_finite(flag)


class Apart(Watched):
    """One that does not bring gradients together, only flags."""

    def mean(self, tree):
        """What came."""
        return tree


def run(library, inputs, max_norm=None, watch=Watched):
    """For each replica the states and reports it passes through, and its communicator; *inputs* by replica and step."""
    rule = LossScaleRule(init_scale=8.0, growth_interval=2)

    def replica(communicator, steps):
        watched = watch(communicator)
        model = network([library.array([1.0, 1.0])])
        optimizer = Momentum(model, learning_rate=0.125)
        state, passed = init_train_state(model.params, optimizer, rule), []
        for step in steps:
            given = None if step is None else library.array(step)
            with library.quiet():
                state, report = train_step(model, optimizer, rule, state, [given], max_norm=max_norm, communicator=watched)
            passed.append(library.to_numpy((state, report)))
        return passed, watched

    return on_ranks(replica, inputs)


GOOD, BAD, OTHER = [1.0, 3.0], [1.0, INF], [3.0, 5.0]


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-agreed-norm", "REPLICAS-same-decision")
def test_replicas_move_by_the_mean(library):
    """Each replica takes the step of the mean of the gradients, and reports the norm of the mean."""
    [([(alone, _)], _)] = run(library, [[[2.0, 4.0]]], max_norm=1.0)
    for [(state, report)], _ in run(library, [[GOOD], [OTHER]], max_norm=1.0):
        assert same(state, alone)
        assert alike(report.global_norm, np.sqrt(np.float32(20)))


@pytest.mark.clause(
    "REPLICAS-one-flag", "REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-spreads", "REPLICAS-every-call"
)
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_an_overflow_on_one_replica_is_seen_by_all(library, bad):
    """Both replicas skip the step that one of them cannot take, and neither leaves the other waiting."""
    (one, its), (other, theirs) = run(library, [[GOOD, GOOD, [-bad, 1.0], GOOD], [OTHER, [bad, 1.0], [bad, 1.0], OTHER]])
    for (state, report), (twin, likewise) in zip(one, other, strict=True):
        assert same(state, twin)
        assert same(report._replace(loss=None), likewise._replace(loss=None))
    assert [int(report.status) for _, report in one] == [0, 1, 1, 0]
    assert [float(report.scale) for _, report in one] == [8, 8, 4, 2]
    assert its.calls == theirs.calls == ["mean", "all_finite"] * 4


@pytest.mark.clause("REPLICAS-one-flag", "REPLICAS-same-decision")
def test_the_flags_alone_stop_all(library):
    """Where the gradients of one replica never reach the other, the flag still does."""
    for [(_, report)], _ in run(library, [[BAD], [GOOD]], watch=Apart):
        assert report.status == StepStatus.OVERFLOW


@pytest.mark.clause("REPLICAS-mean-before-check", "STEP-order")
def test_the_mean_is_taken_of_scaled_gradients(library):
    """The communicator is handed the gradients as the pullback gave them, before they are unscaled."""
    [(_, watched)] = run(library, [[GOOD]])
    assert alike(library.to_numpy(watched.trees[0][0]), np.asarray([8, 24], np.float32))


@pytest.mark.clause("REPLICAS-mean-overflows")
def test_a_mean_that_overflows_is_an_overflow(library):
    """Gradients that are finite on each replica, but whose mean is not, are skipped by both."""
    large = [2.0**124, 1.0]  # times a scale of 8 it is finite, but not twice
    for passed, _ in run(library, [[large, GOOD], [large, large]]):
        assert [int(report.status) for _, report in passed] == [1, 0]


@pytest.mark.clause("REPLICAS-every-call", "STEP-no-gradients")
def test_a_replica_without_gradients_makes_both_calls(library):
    """A step without gradients is not left early."""
    for [(_, report)], watched in run(library, [[None], [None]]):
        assert report.status == StepStatus.NO_GRADIENTS
        assert watched.calls == ["mean", "all_finite"]


@pytest.mark.clause("REPLICAS-single")
def test_alone_both_verbs_return_their_argument(library):
    """Without other replicas there is nothing to agree on."""
    tree, flag = [library.array([1.0, 1.0])], library.array(False, "bool")
    assert SINGLE_REPLICA.mean(tree) is tree
    assert SINGLE_REPLICA.all_finite(flag) is flag
