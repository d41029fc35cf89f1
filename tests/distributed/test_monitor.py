"""Monitors of several ranks name the ranks whose gradients were not finite, and agree on the verdict."""

import numpy as np
from distributed.training import communicator_of
from linear import network as linear_network

import ampscale
from ampscale.diagnostics import Monitor


def diagnoses(rank, engine, values, losses=(1.0, 1.0, 1.0, 1.0)):
    """Train so that the first gradient contains ``values[step][rank]``; return the verdict and message of each step."""
    communicator, _, make = communicator_of(engine, "replicated", timeout=10)
    monitor = Monitor(["w", "b"], communicator=communicator)
    rule = ampscale.LossScaleRule(init_scale=1.5)
    network = linear_network([make(np.full(4, 1e-30, np.float32)), make(np.ones(2, np.float32))])
    optimizer = ampscale.optimizers.SGD(network, 1e-38)
    state = ampscale.init_train_state(network.params, optimizer, rule)
    results = []
    for values_of_ranks in values:
        inputs = [make(np.full(4, values_of_ranks[rank], np.float32)), make(np.ones(2, np.float32))]
        state, report = ampscale.train_step(network, optimizer, rule, state, inputs, communicator=communicator, measure=True)
        diagnosis = monitor.record(report._replace(loss=make(np.full((), losses[rank], np.float32))))
        results.append([diagnosis.verdict, diagnosis.message])
    return results


def test_all_ranks_name_the_rank_whose_loss_is_not_finite(ranks):
    """The loss and the gradients of the other ranks are finite."""
    values = [1.0, 1.0, np.nan, 1.0]
    message = "the loss on rank 2 was nan before scaling: look for the cause in the inputs or in the forward pass"
    assert ranks.run(diagnoses, ranks.engine, [values], values) == [[["forward pass not finite", message]]] * 4


def test_monitors_name_the_rank_at_fault(ranks):
    """All ranks have finite gradients in the first and the last step; in the last one, only their sum overflows."""
    inf, large = float("inf"), 3e38
    steps = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, inf, 1.0], [inf, 1.0, 1.0, inf], [large, large, large, large]]
    first, *others = ranks.run(diagnoses, ranks.engine, steps)
    assert [verdict for verdict, _ in first] == ["healthy", "occasional", "no scale helps", "only the mean overflowed"]
    assert [[verdict for verdict, _ in rows] for rows in others] == [[verdict for verdict, _ in first]] * 3
    _, occasional, no_scale_helps, only_the_mean = (message for _, message in first)
    assert " on rank 2, after 1 applied" in occasional
    assert no_scale_helps == "the gradients in w on ranks 0, 3 are not finite at a scale of 0.75"
    assert only_the_mean == "the gradients of all 4 ranks were finite, and only their mean was not: add them up in float32"
