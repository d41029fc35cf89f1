"""Two replicas, in threads that wait for each other, agree on every step."""

import numpy as np
import pytest
from linear import network
from ranks import on_ranks
from strategies import alike, same

from ampscale import StepStatus, init_train_state, train_step
from ampscale.core.replicas import SINGLE_REPLICA, rank_names
from ampscale.core.rule import LossScaleRule
from ampscale.optimizers import Momentum

INF, NAN = np.inf, np.nan
GOOD, BAD, OTHER = [1.0, 3.0], [1.0, INF], [3.0, 5.0]


class Recording:
    """Communicator that records its calls."""

    def __init__(self, communicator):
        self.communicator, self.calls = communicator, []

    def mean(self, tree):
        """Return the mean, without NumPy's warnings."""
        self.calls.append("mean")
        with np.errstate(all="ignore"):
            return self.communicator.mean(tree)

    def agree(self, *args, norm):
        self.calls.append("agree, with the norm" if norm else "agree")
        return self.communicator.agree(*args, norm=norm)

    def check_same(self, **settings):
        pass


class FlagsOnly(Recording):
    """Communicator that combines the flags but does not average the gradients."""

    def mean(self, tree):
        return tree


def run(library, inputs, max_norm=None, wrapper=Recording):
    """Return for each replica its pairs of state and report, and its communicator. *inputs* has each replica's gradients."""
    rule = LossScaleRule(init_scale=8.0, growth_interval=2)

    def replica(communicator, gradients_of_steps):
        recording = wrapper(communicator)
        model = network([library.array([1.0, 1.0])])
        optimizer = Momentum(model, learning_rate=0.125)
        state, results = init_train_state(model.params, optimizer, rule), []
        for values in gradients_of_steps:
            gradient = None if values is None else library.array(values)
            with library.quiet():
                state, report = train_step(model, optimizer, rule, state, [gradient], max_norm=max_norm, communicator=recording)
            results.append(library.to_numpy((state, report)))
        return results, recording

    return on_ranks(replica, inputs)


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-agreed-norm", "REPLICAS-same-decision")
def test_replicas_apply_the_mean_gradient(library):
    """Each replica requests the norm of all ranks, and reports the norm of the mean."""
    [(results_of_mean, _)] = run(library, [[[2.0, 4.0]]], max_norm=1.0)
    for [(state, report)], communicator in run(library, [[GOOD], [OTHER]], max_norm=1.0):
        assert communicator.calls == ["mean", "agree, with the norm"]
        assert same(state, results_of_mean[0][0])
        assert alike(report.global_norm, np.sqrt(np.float32(20)))


@pytest.mark.clause(
    "REPLICAS-one-flag", "REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-spreads", "REPLICAS-every-call"
)
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_overflow_on_one_replica_skips_the_step_on_all(library, bad):
    """States, and reports except the loss, are equal on both replicas. Both make all calls, so neither waits indefinitely."""
    (results, communicator), (other_results, other_communicator) = run(
        library, [[GOOD, GOOD, [-bad, 1.0], GOOD], [OTHER, [bad, 1.0], [bad, 1.0], OTHER]]
    )
    for (state, report), (other_state, other_report) in zip(results, other_results, strict=True):
        assert same(state, other_state)
        assert same(report._replace(loss=None), other_report._replace(loss=None))
    assert [int(report.status) for _, report in results] == [0, 1, 1, 0]
    assert [float(report.scale) for _, report in results] == [8, 8, 4, 2]
    assert communicator.calls == other_communicator.calls == ["mean", "agree"] * 4


@pytest.mark.clause("REPLICAS-one-flag", "REPLICAS-same-decision")
def test_flag_of_one_replica_skips_the_step_on_all(library):
    """The flag is combined even if the gradients are not averaged."""
    for [(_, report)], _ in run(library, [[BAD], [GOOD]], wrapper=FlagsOnly):
        assert report.status == StepStatus.OVERFLOW


@pytest.mark.clause("REPLICAS-mean-overflows", "REPLICAS-mean-before-check", "STEP-order")
def test_mean_that_overflows_is_an_overflow(library):
    """The gradients are averaged before they are unscaled: the scaled ones are finite on each replica, but their sum is not."""
    large = [2.0**124, 1.0]  # finite when scaled by 8, but the sum of two is infinite
    for results, _ in run(library, [[large, GOOD], [large, large]]):
        assert [int(report.status) for _, report in results] == [1, 0]


@pytest.mark.clause("REPLICAS-every-call", "STEP-no-gradients")
def test_step_without_gradients_makes_both_calls(library):
    """Other replicas may wait for the calls."""
    for [(_, report)], recording in run(library, [[None], [None]]):
        assert report.status == StepStatus.NO_GRADIENTS
        assert recording.calls == ["mean", "agree"]


@pytest.mark.clause("REPLICAS-single")
def test_single_replica_returns_its_arguments(library):
    """`mean` returns the tree itself, and `agree` the flag itself."""
    tree, flag = [library.array([1.0, 1.0])], library.array(False, "bool")
    assert SINGLE_REPLICA.mean(tree) is tree
    assert SINGLE_REPLICA.agree(flag, None, tree).finite is flag


def test_errors_name_at_most_eight_ranks():
    assert rank_names([2]) == "rank 2"
    assert rank_names([0, 2]) == "ranks 0, 2"
    assert rank_names([*range(10)]) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
