"""Host synchronizations per step, for every library whose reads can be counted."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from libraries import on
from linear import network

import ampscale
from ampscale.optimizers import AdamW

WATCHED = on("strict16", "torch", "jax")


def transformation(_network):
    """Return gradient descent as an optax transformation."""
    return SimpleNamespace(
        init=lambda _params: (), update=lambda gradients, state, _params: ([-gradient for gradient in gradients], state)
    )


CELLS = pytest.mark.parametrize(  # with an optimizer, and the overflow flag and the number of synchronizations of each call
    ("cell", "make", "options", "overflows", "expected"),
    [
        (ampscale.TrainOneStepWithLossScaleCell, transformation, {}, [False, True, False, False, True, False], [1] * 6),
        (
            ampscale.MFTrainOneStepCell,
            AdamW,
            {"use_clip_grad": True, "local_norm": True, "ema_decay": 0.5, "gradient_accumulation_steps": 2},  # two calls per step
            [False, True, False, False, True, True],
            [0, 1, 0, 1, 0, 1],
        ),
    ],
    ids=["mindspore", "mindformers"],
)
INPUTS = [[1.0, 2.0], [float("inf"), 2.0], [1.0, 2.0], [3.0, 2.0], [float("nan"), 2.0], [1.0, 2.0]]


def build(library, cell, optimizer, **options):
    """Return a cell with a dynamic scale, and the inputs of six calls, two of which overflow."""
    model = network([library.array([0.5, -1.0])])
    scale = ampscale.DynamicLossScaleUpdateCell(2.0**10, 2, 2)
    return cell(model, optimizer(model), scale_sense=scale, **options), [[library.array(values)] for values in INPUTS]


@pytest.mark.clause("BACKENDS-no-host-sync", "BACKENDS-one-host-sync", "STEP-two-modes")
@WATCHED
@CELLS
def test_a_cell_synchronizes_once_per_step_for_a_callable_optimizer_only(library, cell, make, options, overflows, expected):
    """Outputs stay on the device; a callable optimizer is called on finite steps only."""
    step, inputs = build(library, cell, make, **options)
    with library.count_reads() as reads:
        outputs = [step(values) for values in inputs]
    assert reads == []
    assert [bool(library.get(output[1])) for output in outputs] == overflows
    called, counts = [], []
    step, inputs = build(library, cell, lambda _: called.append, **options)
    for values in inputs:
        with library.count_reads() as reads:
            step(values)
        counts.append(len(reads))
    assert counts == expected
    assert len(called) == sum(count for overflow, count in zip(overflows, expected, strict=True) if not overflow)


@pytest.mark.clause("BACKENDS-one-host-sync")
@WATCHED
def test_a_step_of_paddles_scaler_synchronizes_once(library):
    """Unscaling and stepping copy one flag to the host; scaling and the update copy nothing."""
    scaler = ampscale.GradScaler(init_loss_scaling=2.0**10, incr_every_n_steps=2)
    model = network([library.array([0.5, -1.0])])
    optimizer = SimpleNamespace(parameters=model.parameters, step=Mock())
    for values in INPUTS:
        optimizer.parameters[0].grad = library.array(values)
        with library.count_reads() as reads:
            scaler.scale(library.array(1.0))
        assert reads == []
        with library.count_reads() as reads:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        assert len(reads) == 1
    assert optimizer.step.call_count == 4


@pytest.mark.clause("BACKENDS-no-host-sync", "MINDSPORE-dynamic-growth")
@WATCHED
def test_a_loop_with_mindspores_scaler_does_not_synchronize(library):
    """Results and state stay on the device; the first call, whichever it is, moves the state there."""
    assert library.get(ampscale.StaticLossScaler(2.0).unscale(library.array([4.0]))).tolist() == [2.0]
    scaler = ampscale.DynamicLossScaler(2.0**10, 2, 2)
    gradients = [[library.array(values)] for values in INPUTS]
    with library.count_reads() as reads:
        for scaled in gradients:
            scaler.scale(library.array(1.0))
            scaler.adjust(ampscale.all_finite(scaler.unscale(scaled)))
    assert reads == []
    assert float(library.get(scaler.scale_value)) == 2.0**9
