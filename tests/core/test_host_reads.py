"""
Functions of the core copy no array to the host: the copies are counted, on each library whose copies can be counted.

strict16 has no backend of its own, so the public functions use the reference definitions of the core there.
"""

import numpy as np
import pytest
from libraries import on
from linear import network
from strategies import DTYPES

import ampscale
from ampscale.core.rule import LossScaleRule
from ampscale.core.step import StepStatus
from ampscale.optimizers import AdamW

COUNTED = on("strict16", "torch", "jax")


@pytest.mark.clause("OVERFLOW-no-host-sync", "NORMS-fused", "NORMS-clip")
@COUNTED
def test_unscaling_checking_and_clipping_copy_nothing_to_the_host(library):
    """In each format, one gradient has shape (), and another one has shape (3,) and contains an infinity."""
    tree = {name: [library.array(3.0, name), library.array([1.0, np.inf, -0.0], name), None] for name in DTYPES}
    scale = library.array(8)
    with library.count_reads() as reads:
        _, finite = ampscale.unscale_and_check(tree, scale, dtype="float32")
        norms = ampscale.unscale_check_and_norm(tree, scale)[2], ampscale.clip_by_global_norm(tree, 1.0)[1]
    assert reads == []
    assert not library.to_numpy(finite)
    assert [library.to_numpy(norm) for norm in norms] == [np.inf, np.inf]


@pytest.mark.clause("STEP-two-modes")
@COUNTED
def test_training_step_copies_nothing_to_the_host(library):
    """Two steps are applied and one is skipped, with a learning rate schedule and clipping, on parameters of two formats."""
    model = network([library.array([1.0, -2.0], "float16"), library.array(0.5)])
    rule = LossScaleRule(8.0, growth_interval=1)
    optimizer = AdamW(model, learning_rate=[0.5, 0.25])
    steps = [[library.array([1.0, second], "float16"), library.array(3.0)] for second in (2.0, np.inf, 2.0)]
    state, reports = ampscale.init_train_state(model.params, optimizer, rule), []
    with library.count_reads() as reads:
        for inputs in steps:
            state, report = ampscale.train_step(model, optimizer, rule, state, inputs, max_norm=1.0)
            reports.append(report)
    assert reads == []
    assert [StepStatus(int(library.to_numpy(report.status))).name for report in reports] == ["APPLIED", "OVERFLOW", "APPLIED"]
    assert [float(library.to_numpy(report.next_scale)) for report in reports] == [16, 8, 16]
