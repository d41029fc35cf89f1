"""Chapter 70, backends, and related requirements on the step: host reads, compilation, another process."""

import math

from ..model.case import case
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle import tensors
from ..oracle.machine import Machine, trajectory
from ..oracle.tensors import array
from .backends_host_reads import Observed
from .backends_process import scales_elsewhere
from .calls_loop import simple_rule

SCALED = [array("float32", [1024.0, -512.0]), array("float32", [3072.0])]
OVERFLOWED = [array("float32", [1024.0, math.inf]), array("float32", [3072.0])]
LONG = "++-+++--------++++-+-++++"
LOWEST = 64.0  # a min_scale that eight overflows reach
ODD = {"half": array("float16", [3.0, -0.0, 2.0**-24, math.inf]), "single": array("float32", [1.1, 2.0**-100, 3e38, math.nan])}
FLAGS = ([array("float32", [3e38, 3e38])], [array("float16", [1.0, math.inf])], [array("float32", [math.nan])])


@case("BACKENDS-no-host-sync", 4, "hidden synchronization: a flag or a scale is copied to the host", "stays-on-device")
def a_step_on_arrays_reads_nothing(subject: Subject) -> None:
    """An overflow, and the step after it."""
    reads: list[str] = []
    observed = Subject(Observed(subject.adapter, reads), "", subject.calls)
    handle = observed.create(simple_rule(observed))
    for tree in (OVERFLOWED, SCALED):
        handle, _ = observed.call("step_on_arrays", handle, observed.to_arrays(tree))
    subject.expect(not reads, f"expected no read on the host, got {len(reads)}: {', '.join(reads)}")


@case("BACKENDS-same-run", 4, "different step: on arrays, the gradients or the scale differ from the rule's", "stays-on-device")
def a_step_on_arrays_is_the_same_step(subject: Subject) -> None:
    """Gradients are divided by the current scale, and their flag updates the scale."""
    rule = simple_rule(subject, growth_interval=2)
    machine, handle = Machine(rule), subject.create(rule)
    for number, tree in enumerate((SCALED, SCALED, SCALED, OVERFLOWED)):
        handle, unscaled = subject.call("step_on_arrays", handle, subject.to_arrays(tree))
        expected = [tensors.unscale(leaf, machine.point.scale) for leaf in tree]
        finite = tensors.all_finite(tree) and tensors.all_finite(expected)
        if finite:
            subject.expect_same(subject.to_bits(unscaled, "step_on_arrays"), expected, f"step {number} (counted from 0)")
        got, scale = rounded(subject.read_scale(handle), rule.dtype), machine.step(finite).scale
        subject.expect(got == scale, f"after step {number} (counted from 0): expected scale {scale!r}, got {got!r}")


@case("STEP-compiled", 4, "lost constant: min_scale, growth_interval or a count has no effect when compiled", "jit")
def compiled_it_moves_to_the_same_scales(subject: Subject) -> None:
    """Down to min_scale and up again, in lockstep with the uncompiled implementation."""
    floor = {"min_scale": LOWEST} if "min_scale" in subject.supported.parameters else {}
    rule = simple_rule(subject, growth_interval=2, **floor)
    compiled = subject.compiled()
    handle, other = subject.create(rule), compiled.create(rule)
    flags = [sign == "+" for sign in LONG]
    for number, (finite, point) in enumerate(zip(flags, trajectory(rule, flags)[1:], strict=False)):
        if point.stopped:
            return
        handle, other = subject.update(handle, finite), compiled.update(other, finite)
        expected, got = subject.read_scale(handle), compiled.read_scale(other)
        message = f"after step {number} (counted from 0) of {LONG}, compiled: expected scale {expected!r}, got {got!r}"
        subject.expect(got == expected, message)


@case("STEP-compiled", 4, "different bits: the compiler changes the division or its dtype", "jit")
def compiled_it_unscales_to_the_same_bits(subject: Subject) -> None:
    """Special values in two dtypes."""
    rule, compiled = simple_rule(subject), subject.compiled()
    expected = subject.unscale(subject.create(rule), ODD)
    subject.expect_same(compiled.unscale(compiled.create(rule), ODD), expected, "unscale, compiled")


@case("STEP-compiled", 4, "different flag: the compiler assumes finite numbers, or replaces the check by a sum", "jit")
def compiled_it_sees_the_same_overflows(subject: Subject) -> None:
    """Large numbers, an infinity, and NaN."""
    compiled = subject.compiled()
    for tree in FLAGS:
        expected, got = subject.all_finite(tree), compiled.all_finite(tree)
        subject.expect(got == expected, f"all_finite, compiled: expected {expected}, got {got}")


@case("STEP-resume", 4, "lost state: part of the state is not saved and stays in the process", "resume", "process")
def another_process_goes_on(subject: Subject) -> None:
    """Saved in the middle of a growth window."""
    rule = simple_rule(subject, growth_interval=3)
    before, after = [False, True, True], [True, True, True, True, False, True]
    handle = subject.create(rule)
    for finite in before:
        handle = subject.update(handle, finite)
    saved = subject.call("save", handle)
    expected = [point.scale for point in trajectory(rule, before + after)[1 + len(before) :]]
    got = [rounded(scale, rule.dtype) for scale in scales_elsewhere(subject, rule, saved, after)]
    subject.expect(got == expected, f"in another process: expected scales {expected}, got {got}")


CASES = (
    a_step_on_arrays_reads_nothing,
    a_step_on_arrays_is_the_same_step,
    compiled_it_moves_to_the_same_scales,
    compiled_it_unscales_to_the_same_bits,
    compiled_it_sees_the_same_overflows,
    another_process_goes_on,
)
