"""Verdicts on records of steps, as far as trainings with a planted cause do not show them."""

import math
from dataclasses import replace

import pytest

from ampscale.diagnostics import Diagnoser, StepRecord, TensorStatistics, Verdict

APPLIED = StepRecord(0, 1024.0, 1024.0, finite=True, applied=True, loss=1.0)
OVERFLOW = replace(APPLIED, next_scale=512.0, finite=False, applied=False)


def measured(record, *statistics):
    """Return *record* with statistics of one gradient: size, zeros, subnormals, underflows, infinities, NaNs, exponents."""
    return replace(record, measured_scale=record.scale, tensors=(TensorStatistics(*statistics),))


def nans(scale, *, infinities=0, loss=1.0):
    """Return the record of an overflow with NaNs in one gradient."""
    return measured(replace(OVERFLOW, scale=scale, loss=loss), 4, 0, 0, 0, infinities, 4 - infinities, 32767, -32768)


CLIPPED = [replace(APPLIED, scale=scale, norm=1 / scale) for scale in (512.0, 1024.0, 2048.0, 4096.0)]
SMALL = measured(APPLIED, 4, 0, 4, 0, 0, 0, -20, -16)
ZERO = measured(APPLIED, 4, 4, 0, 0, 0, 0, 32767, -32768)
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
    "gradients are zero, and twice the scale has overflowed": ([replace(OVERFLOW, scale=2048.0), ZERO], Verdict.HEALTHY),
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
    "NaNs occur at a smaller scale, after infinities": (
        [APPLIED, nans(1024.0, infinities=1), nans(512.0)],
        Verdict.SEARCHING,
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_last_step_has_the_verdict(name):
    """The steps before it are the history on which its verdict rests."""
    records, verdict = VERDICTS[name]
    diagnoser = Diagnoser()
    assert [diagnoser.diagnose(record).verdict for record in records][-1] is verdict


@pytest.mark.parametrize("are_named", [True, False])
def test_one_tensor_is_the_same_in_each_step(are_named):
    """A different expert overflows in each step: all gradients of other experts are None, or the experts have no names."""
    diagnoser = Diagnoser()
    finite, overflow = TensorStatistics(4, 0, 0, 0, 0, 0, -1, 1), TensorStatistics(4, 0, 0, 0, 1, 0, -1, 1)
    for step in range(8):
        record = replace(OVERFLOW, step=step, scale=2.0 ** (20 - step), next_scale=2.0 ** (19 - step))
        tensors = (finite, overflow) if are_named else tuple(overflow if step % 3 == index else finite for index in range(3))
        names = ["router", f"expert {step % 3}"] if are_named else ["unnamed"] * 3
        diagnosis = diagnoser.diagnose(replace(record, measured_scale=record.scale, tensors=tensors), names)
        assert diagnosis.verdict is Verdict.SEARCHING


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
    """The rank whose monitor diagnoses the step is not at fault for that reason."""
    diagnoser = Diagnoser()
    statistics = TensorStatistics(4, 0, 0, 0, 0, 0, -1, 1), TensorStatistics(4, 0, 0, 0, 1, 0, -1, 1)
    for step, flags in enumerate(finite_ranks):
        overflow = replace(OVERFLOW, scale=2.0 ** (20 - step), next_scale=2.0 ** (19 - step), finite_ranks=flags, rank=0)
        diagnosis = diagnoser.diagnose(replace(overflow, step=step, measured_scale=overflow.scale, tensors=statistics))
    assert diagnosis.message.startswith(f"only gradient 1 is not finite{on_ranks}, in all 3 skipped steps")
    assert diagnosis.evidence["rank"] == rank
