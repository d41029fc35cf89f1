"""Chapter 50, step: training of a linear network, and the outputs of each step; `step_drawn.py` takes the steps."""

from contextlib import suppress

from ..model.adapter import Unsupported
from ..model.case import case
from ..model.subject import Subject
from ..oracle.tensors import array
from . import step_drawn
from .calls_loop import SHAPES, new_parameters, simple_rule
from .rows import rows
from .step_drawn import Cell, data_of, step_case

TRACES = """
STEP-apply/applies-the-unscaled-gradient | +
    wrong update: the gradient is still scaled, or not multiplied by the learning rate
STEP-apply/updates-16-bit-parameters | -+ | dtype=float16 factor=-1
    missing dtype: the optimizer does not accept float16 gradients, or the scale overflows float16
STEP-apply/updates-bfloat16-parameters | -+ | dtype=bfloat16 factor=-1
    missing dtype: the optimizer does not accept bfloat16 gradients, or bfloat16 overflows are applied
STEP-apply/updates-float64-parameters | -+ | dtype=float64 factor=-1.1
    missing dtype: the optimizer does not accept float64 gradients, or rounds parameters to float32
STEP-order/each-step-uses-one-scale | + | growth_interval=1
    early update: gradients are divided by the scale after the growth in this step
STEP-skip/an-overflow-changes-nothing | -+ | layout=h
    applied overflow: parameters become infinite or NaN
OVERFLOW-all-finite/the-last-of-many-gradients-is-checked | +e | layout=g steps=2
    partial check: the arrays or elements beyond those of one kernel launch are not checked
STEP-skip/an-overflow-leaves-the-momentum | +-+ | momentum=0.5
    changing momentum: a skipped step decays or corrupts the momentum, or applies it
STEP-skip/an-overflow-at-the-minimum-leaves-the-momentum | +-+--- |
    momentum=0.5 init_scale=2**4 min_scale=2**3 layout=i steps=120
    changing momentum: a skipped step that leaves the scale unchanged decays or resets the momentum
STEP-skip/a-skipped-step-keeps-every-bit | ! | factor=-1
    rewritten parameters: a skipped step adds zeros to them, and one is -0.0
STEP-skip/an-overflow-leaves-the-schedule | +-+ | learning_rate=rates
    advancing schedule: skipped steps decrease the learning rate
STEP-report/reports-the-finite-flag | +-x | outputs=finite learning_rate=2**100
    wrong flag: the flag is inverted or constant
STEP-report/reports-both-scales | ++-+ | outputs=scale,next_scale growth_interval=2 init_scale=2**16
    single scale: both scales are the same, or exchanged
STEP-scale-updated-last/the-scale-is-updated-once-a-step | +-++--+++++++++++++++++++----------- |
    outputs=next_scale growth_interval=17 init_scale=2**15
    wrong update: the scale is updated only in applied steps, or twice
STEP-loss-unscaled/the-loss-is-unscaled | +-! | outputs=loss
    scaled loss: the loss is reported scaled, computed after the update, or missing in a skipped step
STEP-learning-rate/reports-the-learning-rate-of-the-step | +-+ | outputs=learning_rate learning_rate=fine
    next rate: the learning rate of the next step is reported
STEP-counters/counts-attempted-and-applied-steps | +-+++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++
    | outputs=attempted,applied,parameters times=4 layout=i
    single count: skipped steps count as applied, or not at all
"""


@case("STEP-seed", 3, "unused scale: the scale backs off, but the backward pass starts from another number")
def the_scale_backs_off_until_the_gradients_fit(subject: Subject) -> None:
    """Train on data that overflow by a factor of 2 at the initial scale, which is 2**40 if that can be set."""
    rule = simple_rule(subject)
    with suppress(Unsupported):
        rule = simple_rule(subject, init_scale=2.0**40)
    if not 4.0 <= rule.init_scale <= 2.0**64:
        raise Unsupported(f"the initial scale is {rule.init_scale!r}, and this case requires one from 4 to 2**64")
    data = [array("float32", [2.0**126 / rule.init_scale * 4])]
    cell = Cell(subject, rule, new_parameters([(1,)]), learning_rate=2.0**-128 * rule.init_scale)
    for number in range(2):
        cell.expect(cell.train(data), ["parameters"], f"step {number} (counted from 0)")


@case("STEP-report", 3, "shared output: later steps change the outputs of an earlier step")
def outputs_are_snapshots(subject: Subject) -> None:
    """After the fifth step, compare the outputs of the first one again; by then, both scales have changed."""
    cell = Cell(subject, simple_rule(subject, growth_interval=2), new_parameters(SHAPES["a"]))
    data = [data_of(SHAPES["a"], letter, number, cell.scale) for number, letter in enumerate("++++-")]
    first, *_ = [cell.train(gradients) for gradients in data]
    cell.expect(first, ("parameters", "scale", "next_scale", "finite"), "step 0 (counted from 0), compared after step 4")


CASES = (*map(step_case, rows(TRACES)), the_scale_backs_off_until_the_gradients_fit, outputs_are_snapshots, *step_drawn.CASES)
