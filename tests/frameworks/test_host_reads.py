"""What a step costs in reads on the host, counted on every library that can be watched."""

import pytest
from libraries import on
from linear import network

import ampscale
from ampscale.optimizers import AdamW

WATCHED = on("strict16", "torch", "jax")
FLAGS = [False, True, False, False, True, False]  # of one call after the other; with two to a step, of either
CELLS = pytest.mark.parametrize(
    ("cell", "options", "overflows", "looks"),
    [
        (ampscale.TrainOneStepWithLossScaleCell, {}, FLAGS, [1, 1, 1, 1, 1, 1]),
        (
            ampscale.MFTrainOneStepCell,
            {"use_clip_grad": True, "local_norm": True, "ema_decay": 0.5, "gradient_accumulation_steps": 2},
            [False, True, False, False, True, True],
            [0, 1, 0, 1, 0, 1],
        ),
    ],
    ids=["mindspore", "mindformers"],
)
STEPS = [[1.0, 2.0], [float("inf"), 2.0], [1.0, 2.0], [3.0, 2.0], [float("nan"), 2.0], [1.0, 2.0]]


def build(library, cell, optimizer, **options):
    """A cell of one network with a moving scale, and the inputs of six steps, two of which overflow."""
    model = network([library.array([0.5, -1.0])])
    scale = ampscale.DynamicLossScaleUpdateCell(2.0**10, 2, 2)
    return cell(model, optimizer(model), scale_sense=scale, **options), [[library.array(values)] for values in STEPS]


class ByHand:
    """An optimizer of a hand-written loop, on parameters with a `grad`."""

    def __init__(self, parameters):
        self.parameters, self.steps = parameters, 0

    def step(self):
        """Counts, and moves nothing."""
        self.steps += 1


@pytest.mark.clause("BACKENDS-no-host-sync", "BACKENDS-one-host-sync", "STEP-two-modes")
@WATCHED
@CELLS
def test_a_cell_reads_one_flag_a_step_with_an_eager_optimizer_and_else_nothing(library, cell, options, overflows, looks):
    """Loss, overflow, scale, norms and averages stay where they are; an eager optimizer is called on finite steps alone."""
    step, inputs = build(library, cell, AdamW, **options)
    with library.count_reads() as reads:
        outputs = [step(values) for values in inputs]
    assert reads == []
    assert [bool(library.get(output[1])) for output in outputs] == overflows
    called, seen = [], []
    step, inputs = build(library, cell, lambda _: called.append, **options)
    for values in inputs:
        with library.count_reads() as reads:
            step(values)
        seen.append(len(reads))
    assert seen == looks
    assert len(called) == sum(looks) - sum(flag and look for flag, look in zip(overflows, looks, strict=True))


@pytest.mark.clause("BACKENDS-one-host-sync")
@WATCHED
def test_a_step_of_paddles_scaler_reads_one_flag(library):
    """Scaling reads nothing, unscaling and stepping one flag, moving the scale nothing."""
    scaler = ampscale.GradScaler(init_loss_scaling=2.0**10, incr_every_n_steps=2)
    model = network([library.array([0.5, -1.0])])
    optimizer = ByHand(model.parameters)
    for values in STEPS:
        optimizer.parameters[0].grad = library.array(values)
        with library.count_reads() as reads:
            scaler.scale(library.array(1.0))
        assert reads == []
        with library.count_reads() as reads:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        assert len(reads) == 1
    assert optimizer.steps == 4


@pytest.mark.clause("BACKENDS-no-host-sync", "MINDSPORE-dynamic-growth")
@WATCHED
def test_a_loop_of_mindspores_scaler_reads_nothing(library):
    """Scale, unscale, check and adjust stay on the device, and so does the state."""
    scaler = ampscale.DynamicLossScaler(2.0**10, 2, 2)
    gradients = [[library.array(values)] for values in STEPS]
    with library.count_reads() as reads:
        for scaled in gradients:
            scaler.scale(library.array(1.0))
            scaler.adjust(ampscale.all_finite(scaler.unscale(scaled)))
    assert reads == []
    assert float(library.get(scaler.scale_value)) == 2.0**9


@WATCHED
def test_a_read_would_be_counted(library):
    """The counter sees the one thing that it is for."""
    with library.count_reads() as reads:
        bool(library.array(True, "bool"))
    assert len(reads) == 1
