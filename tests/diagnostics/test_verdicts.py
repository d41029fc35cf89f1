"""Verdicts on records of steps, as far as trainings with a planted cause do not show them."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from ampscale.diagnostics import Diagnoser, StepRecord, TensorStatistics, Verdict
from ampscale.diagnostics.verdicts import message_with_stall

APPLIED = StepRecord(0, 1024.0, 1024.0, finite=True, applied=True, loss=1.0)
OVERFLOW = replace(APPLIED, next_scale=512.0, finite=False, applied=False)


def measured(record, *statistics):
    """Return *record* with statistics of one gradient: size, zeros, subnormals, underflows, infinities, NaNs, exponents."""
    return replace(record, measured_scale=record.scale, tensors=(TensorStatistics(*statistics),))


def nans(scale, *, infinities=0, loss=1.0):
    """Return the record of an overflow with NaNs in one gradient."""
    return measured(replace(OVERFLOW, scale=scale, loss=loss), 4, 0, 0, 0, infinities, 4 - infinities, 32767, -32768)


def overflow(step, scale, tensors, **fields):
    """Return the record of an overflow, which halves the scale unless *fields* has another `next_scale`."""
    record = replace(OVERFLOW, step=step, scale=scale, next_scale=scale / 2, measured_scale=scale, tensors=tensors)
    return replace(record, **fields)


def diagnoses(records):
    """Return the diagnoses of the steps of a run."""
    diagnoser = Diagnoser()
    return [diagnoser.diagnose(record) for record in records]


def verdicts(records):
    """Return the verdicts on the steps of a run."""
    return [diagnosis.verdict for diagnosis in diagnoses(records)]


CLIPPED = [replace(APPLIED, scale=scale, norm=1 / scale) for scale in (512.0, 1024.0, 2048.0, 4096.0)]
SMALL = measured(APPLIED, 4, 0, 4, 0, 0, 0, -20, -16)
ZERO = measured(APPLIED, 4, 4, 0, 0, 0, 0, 32767, -32768)
DIVIDED = replace(APPLIED, modified=True, change=1 / 1024)
FINITE = TensorStatistics(4, 0, 0, 0, 0, 0, -1, 1)
NEAR_LIMIT = TensorStatistics(4, 0, 0, 0, 1, 0, -1, 14)  # one infinity, and finite values near the largest float16 number
FAR_BELOW_LIMIT = TensorStatistics(4, 0, 0, 0, 1, 0, -1, 1)
VERDICTS = {
    "the norm of the scaled gradients is 1, and they may be constant": (CLIPPED, Verdict.HEALTHY),
    "the norm of the scaled gradients is 1, and they vary": (
        [measured(record, 4, 0, 0, 0, 0, 0, -power, 0) for power, record in enumerate(CLIPPED)],
        Verdict.CLIPPED_BEFORE_UNSCALING,
    ),
    "the norm of the scaled gradients is 1, and they are constant": (
        [measured(record, 4, 0, 0, 0, 0, 0, -1, -1) for record in CLIPPED],
        Verdict.HEALTHY,
    ),
    "the loss is not finite, and a `where` hides this from the gradients": ([replace(APPLIED, loss=math.inf)], Verdict.FORWARD),
    "gradients are small": ([SMALL], Verdict.UNDERFLOW),
    "gradients are small, and twice the scale has overflowed": ([replace(OVERFLOW, scale=2048.0), SMALL], Verdict.HEALTHY),
    "gradients are zero": ([ZERO], Verdict.UNDERFLOW),
    "gradients are zero after normal values": ([measured(APPLIED, *FINITE), ZERO], Verdict.HEALTHY),
    "gradients are zero after they shrank": ([measured(APPLIED, *FINITE), SMALL, ZERO], Verdict.UNDERFLOW),
    "gradients are zero, and twice the scale has overflowed": ([replace(OVERFLOW, scale=2048.0), ZERO], Verdict.HEALTHY),
    "gradients are zero, and the scaled loss is so large that float16 cannot lose them": (
        [replace(ZERO, loss=2.0)],
        Verdict.HEALTHY,
    ),
    "gradients are small after the loop divided the scaled ones by various factors": (
        [replace(SMALL, modified=True, change=1 / divisor) for divisor in (8, 9)],
        Verdict.HEALTHY,
    ),
    "gradients are small after the loop divided the scaled ones by 8": (
        [replace(SMALL, modified=True, change=1 / 8)] * 2,
        Verdict.UNDERFLOW,
    ),
    "gradients are divided by the scale": ([DIVIDED] * 2, Verdict.UNSCALED_TWICE),
    "gradients of a summed loss are divided by a count that equals the scale": (
        [replace(DIVIDED, loss=700.0)] * 2,
        Verdict.HEALTHY,
    ),
    "the loss and its gradients are zero": ([replace(ZERO, loss=0.0)], Verdict.HEALTHY),
    "gradients are not finite at 1/2, and were finite at 1/4": (
        [replace(APPLIED, scale=0.25), replace(OVERFLOW, scale=0.5, finite_at_one=False)],
        Verdict.OCCASIONAL,
    ),
    "gradients are not finite at 1, and were finite at 1": (
        [replace(APPLIED, scale=1.0), replace(OVERFLOW, scale=1.0)],
        Verdict.NO_SCALE_HELPS,
    ),
    "gradients are not finite when they are computed at 1": ([replace(OVERFLOW, finite_at_one=False)], Verdict.NO_SCALE_HELPS),
    "NaNs are gone at 1": (
        [replace(APPLIED, scale=2048.0), replace(measured(OVERFLOW, 4, 0, 0, 0, 0, 4, 32767, -32768), finite_at_one=True)],
        Verdict.OCCASIONAL,
    ),
    "NaNs occur below a scale that was finite": ([APPLIED, nans(1024.0), nans(512.0)], Verdict.NO_SCALE_HELPS),
    "NaNs occur at a smaller scale, and the loss has grown": (
        [APPLIED, nans(1024.0, loss=100.0), nans(512.0, loss=100.0)],
        Verdict.SEARCHING,
    ),
    "NaNs occur at a smaller scale, and the loss had grown in the step before": (
        [APPLIED, nans(1024.0, loss=100.0), nans(512.0)],
        Verdict.SEARCHING,
    ),
    "NaNs occur three times at the scale of the step before, and the scale decreases": (
        [replace(record, scale=scale) for scale in (1024.0, 512.0, 256.0) for record in (APPLIED, nans(scale))],
        Verdict.NO_SCALE_HELPS,
    ),
    "NaNs occur twice at each of three scales, with hysteresis": (
        [
            replace(record, scale=scale, next_scale=scale / divisor)
            for scale in (1024.0, 512.0, 256.0)
            for divisor in (1, 2)
            for record in (APPLIED, nans(scale))
        ],
        Verdict.NO_SCALE_HELPS,
    ),
    "NaNs occur three times at the scale of the step before, and infinities once": (
        [
            replace(record, scale=scale)
            for scale in (1024.0, 512.0, 256.0)
            for record in (APPLIED, nans(scale, infinities=scale == 512))
        ],
        Verdict.OCCASIONAL,
    ),
    "NaNs occur three times at the scale of the step before, which is the same each time": (
        [APPLIED, nans(1024.0)] * 3,
        Verdict.OCCASIONAL,
    ),
    "NaNs occur three times, and each time the scale has grown": (
        [record for scale in (1024.0, 512.0, 256.0) for record in (replace(APPLIED, scale=scale / 2), nans(scale))],
        Verdict.OCCASIONAL,
    ),
    "NaNs occur at a smaller scale, after infinities": (
        [APPLIED, nans(1024.0, infinities=1), nans(512.0)],
        Verdict.SEARCHING,
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_last_step_has_the_verdict(name):
    """The steps before it are the history on which its verdict rests."""
    records, verdict = VERDICTS[name]
    assert verdicts(records)[-1] is verdict


@pytest.mark.parametrize("are_named", [True, False])
def test_one_tensor_requires_the_same_gradient_in_each_step(are_named):
    """A different expert overflows in each step: all gradients of other experts are None, or the experts have no names."""
    diagnoser = Diagnoser()
    for step in range(8):
        if are_named:
            tensors = FINITE, FAR_BELOW_LIMIT
            names = ["router", f"expert {step % 3}"]
        else:
            tensors = [FINITE] * 3
            tensors[step % 3] = FAR_BELOW_LIMIT
            names = ["unnamed"] * 3
        assert diagnoser.diagnose(overflow(step, 2.0 ** (20 - step), tensors), names).verdict is Verdict.SEARCHING


def test_one_tensor_is_named_after_three_overflows_far_below_the_limit():
    """Two overflows before them can be due to the scale, because other values are near the limit."""
    statistics = [NEAR_LIMIT] * 2 + [FAR_BELOW_LIMIT] * 3
    records = [overflow(step, 2.0 ** (20 - step), (FINITE, infinite)) for step, infinite in enumerate(statistics)]
    assert verdicts(records) == [Verdict.SEARCHING] * 4 + [Verdict.ONE_TENSOR]


def test_one_tensor_is_named_although_the_scale_backs_off_at_every_second_overflow():
    """With `hysteresis=2`, two skipped steps have the same scale; three scales are needed for the verdict."""
    scales = [2.0**20, 2.0**20, 2.0**19, 2.0**19, 2.0**18, 2.0**18, 2.0**17]
    records = [
        overflow(step, scale, (FINITE, FAR_BELOW_LIMIT), next_scale=next_scale)
        for step, (scale, next_scale) in enumerate(pairwise(scales))
    ]
    assert verdicts(records) == [Verdict.SEARCHING] * 4 + [Verdict.ONE_TENSOR] * 2


def test_dividing_scaled_gradients_in_the_loop_is_no_evidence_for_one_tensor():
    """The loop has divided the scaled gradients by the scale, so their finite values are small, but infinities remain."""
    scales = [2.0 ** (20 - step) for step in range(4)]
    records = [
        overflow(step, scale, (FINITE, FAR_BELOW_LIMIT), modified=True, change=1 / scale) for step, scale in enumerate(scales)
    ]
    assert verdicts(records) == [Verdict.SEARCHING] * 4


def test_message_states_that_the_next_scale_is_the_same():
    """A fixed scale never backs off, and a rule with hysteresis not at every overflow."""
    diagnosis = Diagnoser().diagnose(replace(OVERFLOW, next_scale=1024.0))
    assert diagnosis.message == "the scale 1024 is too large; the next one is the same"
    stalled = diagnoses([replace(OVERFLOW, next_scale=1024.0)] * 20)[-1]
    assert stalled.message == "20 steps were skipped in a row: the scale stays at 1024, so reduce it or its lower bound"
    assert message_with_stall(stalled) == stalled.message


@pytest.mark.parametrize(("statistics", "remedy"), [(NEAR_LIMIT, "so reduce the loss"), (FAR_BELOW_LIMIT, "scale of 1")])
def test_remedy_depends_on_whether_finite_values_are_near_the_limit(statistics, remedy):
    """Finite values near the limit show that the loss is too large. Otherwise, a division by zero is a possible cause."""
    diagnosis = Diagnoser().diagnose(measured(replace(OVERFLOW, scale=1.0, next_scale=0.5), *statistics))
    assert diagnosis.verdict is Verdict.NO_SCALE_HELPS
    assert diagnosis.message.endswith(remedy)


def test_clipping_of_values_is_reported_with_its_magnitude():
    """If the loop clips all values to one magnitude, their norm is the same in each step, too."""
    clipped = replace(APPLIED, modified=True, norm=24.02 / 1024, peak=1.0)  # 24.02 is not round, so it is no limit
    *_, diagnosis = diagnoses(replace(clipped, change=change) for change in (0.1, 0.2, 0.2))
    assert diagnosis.message.startswith("the gradients were clipped to a magnitude of 1 while")


@pytest.mark.parametrize(
    ("peaks", "largest", "verdict"),
    [
        ([0.5] * 4, (-1, -1, -1, -3), Verdict.CLIPPED_BEFORE_UNSCALING),
        ([0.5] * 4, (-1, -1, 0, -3), Verdict.HEALTHY),
        ([0.5] * 4, (-1, -1, -3, -3), Verdict.HEALTHY),
        ([0.5, 0.6, 0.5, 0.5], (-1, -1, -1, -3), Verdict.HEALTHY),
        ([0.54] * 4, (-1, -1, -1, -3), Verdict.HEALTHY),
    ],
    ids=["clipped", "a gradient is larger", "few gradients reach the limit", "the limit varies", "the limit is not round"],
)
def test_clipping_in_hooks_is_recognized_by_a_common_magnitude(peaks, largest, verdict):
    """Hooks of tensors run before version counters are read, so no change is known. One gradient is not clipped."""
    records = []
    for step, peak in enumerate(peaks):
        tensors = tuple(TensorStatistics(4, 0, 0, 0, 0, 0, -9 - step, exponent) for exponent in largest)
        records.append(replace(APPLIED, norm=1.0 + step, peak=peak, measured_scale=1024.0, tensors=tensors))
    assert verdicts(records)[-1] is verdict


@pytest.mark.parametrize(("loss", "contrast"), [(1.0, ", although the loss is not"), (None, "")])
def test_zero_gradients_are_compared_with_the_loss_only_if_it_is_known(loss, contrast):
    """A loop need not pass its loss to the monitor."""
    diagnosis = Diagnoser().diagnose(replace(ZERO, loss=loss))
    assert diagnosis.message == f"all gradients are zero at scale 1024{contrast}: try a larger scale"


def test_underflow_message_never_states_that_no_value_becomes_zero():
    """After a backward pass in float16, lost values are already zeros, and a small share would be rounded to 0 %."""
    small = "are subnormal in float16 at scale 1024, most in gradient 0: try"
    assert small in Diagnoser().diagnose(SMALL).message
    lost = measured(APPLIED, 4, 0, 4, 1, 0, 0, -30, -16)
    assert "at scale 1024, and 25% become zero, most" in Diagnoser().diagnose(lost).message
    assert small in Diagnoser().diagnose(measured(APPLIED, 1000, 0, 500, 1, 0, 0, -30, -13)).message


@pytest.mark.parametrize(
    ("finite_ranks", "on_ranks", "rank"),
    [
        ([(True, False)] * 3, " on rank 1", 1),
        ([(False, False)] * 3, " on ranks 0, 1", None),
        ([(True, False), (False, True), (True, False)], " on ranks 0, 1", None),
        ([None] * 3, "", None),
    ],
    ids=["one rank", "all ranks, as after DDP's mean", "different ranks", "unknown"],
)
def test_one_tensor_names_the_ranks_that_are_known_to_be_at_fault(finite_ranks, on_ranks, rank):
    """The monitor of rank 0 diagnoses the step, which is no evidence against rank 0."""
    *_, diagnosis = diagnoses(
        overflow(step, 2.0 ** (20 - step), (FINITE, FAR_BELOW_LIMIT), finite_ranks=flags, rank=0)
        for step, flags in enumerate(finite_ranks)
    )
    assert diagnosis.message.startswith(f"only gradient 1 is not finite{on_ranks}, in all 3 skipped steps")
    assert diagnosis.evidence["rank"] == rank
