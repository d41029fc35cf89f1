"""Chapter 70, backends, and what of the step depends on them: host reads, compilation, another process."""

import math

from ..model.case import case
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle import tensors
from ..oracle.machine import Machine, trajectory
from ..oracle.tensors import array
from .backends_host_reads import Watched
from .backends_process import scales_elsewhere
from .calls_loop import simple_rule

SCALED = [array("float32", [1024.0, -512.0]), array("float32", [3072.0])]
OVERFLOWED = [array("float32", [1024.0, math.inf]), array("float32", [3072.0])]
LONG = "++-+++--------++++-+-++++"
LOWEST = 64.0  # a floor that is reached within eight overflows
ODD = {
    "half": array("float16", [3.0, -0.0, 2.0**-24, math.inf]),
    "single": array("float32", [1.1, 2.0**-100, 3e38, math.nan]),
}
FLAGS = ([array("float32", [3e38, 3e38])], [array("float16", [1.0, math.inf])], [array("float32", [math.nan])])


@case("BACKENDS-no-host-sync", 4, "hidden read: a flag or a scale comes to the host, and the device waits", "no-host-reads")
def a_step_on_arrays_reads_nothing(subject: Subject) -> None:
    """Also where the step is an overflow, and in the step after one."""
    reads: list[str] = []
    watched = Subject(Watched(subject.adapter, reads), "", subject.calls)
    handle = watched.create(simple_rule(watched))
    for tree in (OVERFLOWED, SCALED):
        handle, _ = watched.call("step_on_arrays", handle, watched.made(tree))
    subject.expect(not reads, f"wanted no read on the host, got {len(reads)}: {', '.join(reads)}")


@case("BACKENDS-same-run", 4, "another step: on arrays the gradients or the scale are not those of the rule", "no-host-reads")
def a_step_on_arrays_is_the_same_step(subject: Subject) -> None:
    """Gradients are divided by the scale that is in force, and the scale moves by their flag."""
    rule = simple_rule(subject, growth_interval=2)
    machine, handle = Machine(rule), subject.create(rule)
    for number, tree in enumerate((SCALED, SCALED, SCALED, OVERFLOWED), start=1):
        handle, unscaled = subject.call("step_on_arrays", handle, subject.made(tree))
        wanted = [tensors.unscale(leaf, machine.point.scale) for leaf in tree]
        finite = tensors.all_finite(tree) and tensors.all_finite(wanted)
        if finite:
            subject.expect_same(subject.read(unscaled, "step_on_arrays"), wanted, f"step {number}")
        got, scale = rounded(subject.read_scale(handle), rule.dtype), machine.step(finite).scale
        subject.expect(got == scale, f"after step {number}: wanted a scale of {scale!r}, got {got!r}")


@case("STEP-compiled", 4, "lost constant: a floor, a window or a count does not come through the compiler", "jit")
def compiled_it_moves_to_the_same_scales(subject: Subject) -> None:
    """Down to a floor and up again, step by step beside the one that is not compiled."""
    floor = {"min_scale": LOWEST} if "min_scale" in subject.family.parameters else {}
    rule = simple_rule(subject, growth_interval=2, **floor)
    compiled = subject.compiled()
    handle, other = subject.create(rule), compiled.create(rule)
    flags = [sign == "+" for sign in LONG]
    for number, (finite, point) in enumerate(zip(flags, trajectory(rule, flags)[1:], strict=False), start=1):
        if point.stopped:
            return
        handle, other = subject.update(handle, finite), compiled.update(other, finite)
        wanted, got = subject.read_scale(handle), compiled.read_scale(other)
        subject.expect(got == wanted, f"after step {number} of {LONG}: {wanted!r} as it is, {got!r} compiled")


@case("STEP-compiled", 4, "other bits: the compiler divides in another way, or in another dtype", "jit")
def compiled_it_unscales_to_the_same_bits(subject: Subject) -> None:
    """Odd numbers in two dtypes."""
    rule, compiled = simple_rule(subject), subject.compiled()
    wanted = subject.unscale(subject.create(rule), ODD)
    subject.expect_same(compiled.unscale(compiled.create(rule), ODD), wanted, "unscale, compiled")


@case("STEP-compiled", 4, "other flag: the compiler takes NaN or infinity for a number, or a sum for its terms", "jit")
def compiled_it_sees_the_same_overflows(subject: Subject) -> None:
    """Large numbers, an infinity, NaN."""
    compiled = subject.compiled()
    for tree in FLAGS:
        wanted, got = subject.all_finite(tree), compiled.all_finite(tree)
        subject.expect(got == wanted, f"all_finite: {wanted} as it is, {got} compiled")


@case("STEP-resume", 4, "left behind: what a run needs stays in the process that saved it", "resume", "process")
def another_process_goes_on(subject: Subject) -> None:
    """In the middle of a window."""
    rule = simple_rule(subject, growth_interval=3)
    before, after = [False, True, True], [True, True, True, True, False, True]
    handle = subject.create(rule)
    for finite in before:
        handle = subject.update(handle, finite)
    saved = subject.call("save", handle)
    wanted = [point.scale for point in trajectory(rule, before + after)[1 + len(before) :]]
    got = [rounded(scale, rule.dtype) for scale in scales_elsewhere(subject, rule, saved, after)]
    subject.expect(got == wanted, f"in another process: wanted {wanted}, got {got}")


CASES = (
    a_step_on_arrays_reads_nothing,
    a_step_on_arrays_is_the_same_step,
    compiled_it_moves_to_the_same_scales,
    compiled_it_unscales_to_the_same_bits,
    compiled_it_sees_the_same_overflows,
    another_process_goes_on,
)
