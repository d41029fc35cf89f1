"""Cases of levels 2 to 5: a conforming loop fails none, failures have exact messages, and inapplicable cases are unsupported."""

import copy
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from ampscale_conformance import Unsupported, Verdict, check
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import backends, calls, norms, replicas, step
from ampscale_conformance.cases.backends_host_reads import Observed
from ampscale_conformance.cases.backends_process import scales_elsewhere
from ampscale_conformance.cases.step_drawn import OUTPUTS
from ampscale_conformance.model.bits import arrays, map_tree
from ampscale_conformance.model.subject import Failed, Subject, TimedOut
from ampscale_conformance.model.verdicts import BAD
from ampscale_conformance.run.check import run
from mutants import mutants_of
from mutants.backends import OnArrays
from mutants.loop import EVERY_LOOP, Loop, OutOfOrderError

from ampscale import LossScaleRule
from ampscale.presets import PRESETS, torch

CASES = (*calls.CASES, *step.CASES, *norms.CASES, *replicas.CASES, *backends.CASES)
MUTANTS = {
    mutant.name: mutant for chapter in ("calls", "step", "norms", "replicas", "backends") for mutant in mutants_of(chapter)
}


def failures(report):
    """Return a dict from the id of each failed case to its message."""
    return {result.case: result.message for result in report.results if result.verdict in BAD}


def result_of(name, adapter):
    """Run the case *name* on an adapter, and return its result."""
    return run(next(case for case in CASES if case.id == name), adapter)


class OtherFormulas(Loop):
    """
    Loop that computes in float64, with other formulas that are permitted, and drops gradients that it no longer needs.

    Like pickling torch's scaler, saving raises an error within an iteration.
    """

    def save(self, handle):
        if handle.progress:
            raise OutOfOrderError("save must be called before the first call of an iteration, or after update_scale")
        return super().save(handle)

    def backward(self, data, scale):
        """Round the scale to the dtype of the data, as automatic differentiation of a float16 loss does."""
        with np.errstate(all="ignore"):
            return data * data.dtype.type(scale)

    def unscale_now(self, handle, optimizer):
        super().unscale_now(handle, optimizer)
        if handle.progress[optimizer].finite is False:
            optimizer.gradients = [gradient if gradient is None else np.zeros_like(gradient) for gradient in optimizer.gradients]

    def mark_stepped(self, handle, optimizer, applied):
        super().mark_stepped(handle, optimizer, applied)
        optimizer.gradients = [None] * len(optimizer.gradients)

    def flags_of_update(self, handle):
        return super().flags_of_update(handle) or [True]

    def euclidean(self, arrays):
        return float(np.linalg.norm([np.linalg.norm(array.astype(np.float64)) for array in arrays[::-1]]))

    def coefficient(self, max_norm, norm):
        return np.float64(min(1.0, max_norm / norm) if norm else 1.0)

    def loss(self, old_parameters, cell, data, finite):
        with np.errstate(all="ignore"):
            pairs = zip(old_parameters[::-1], data[::-1], strict=True)
            return np.float64(sum(np.sum(parameter.astype(np.float64) * value) for parameter, value in pairs))

    def apply(self, cell, gradients, rate):
        """Add the learning rate to the velocities, as Keras does."""
        triples = zip(cell.velocities, gradients, cell.parameters, strict=True)
        cell.velocities = [cell.momentum * velocity + rate * gradient.astype(np.float64) for velocity, gradient, _ in triples]
        pairs = zip(cell.parameters, cell.velocities, strict=True)
        cell.parameters = [np.asarray(parameter - velocity, parameter.dtype) for parameter, velocity in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("conforming", [Loop, OtherFormulas])
def test_conforming_loops_fail_no_case(conforming):
    """All cases pass except one: host reads of NumPy arrays cannot be observed. At least 20 cases pass with other presets."""
    results = check(conforming(), cases=CASES).results
    assert {result.case for result in results if result.verdict != Verdict.PASS} == {"a-step-on-arrays-reads-nothing"}
    for preset in [*PRESETS][:: 5 if conforming is Loop else 7]:
        report = check(conforming(preset), cases=[case for case in CASES if "process" not in case.needs])
        assert failures(report) == {}, preset
        assert report.counts["pass"] >= 20, preset


@pytest.mark.parametrize("conforming", [Loop, OtherFormulas])
def test_float64_parameters_may_have_a_float64_seed(conforming):
    """Chainer's scale is not a power of two: a float32 seed would give other gradients, so its case is unsupported."""
    case = next(case for case in CASES if case.id == "updates-float64-parameters")
    assert run(case, conforming("chainer")).verdict == Verdict.UNSUPPORTED
    assert run(case, conforming("torch")).verdict == Verdict.PASS


class OnlyWhatItClaims(Loop):
    """Loop without the features that it does not claim."""

    def require(self, capability, is_used=True):
        """Raise an error if a feature is used that is not claimed."""
        if is_used and capability not in self.info.capabilities:
            raise NotImplementedError(f"{capability} is not claimed")

    def save(self, handle):
        self.require("resume")
        return super().save(handle)

    def add_optimizer(self, handle, parameters):
        self.require("groups", handle.optimizers > 0)
        handle.optimizers += 1
        return super().add_optimizer(handle, parameters)

    def create(self, rule, **options):
        handle = super().create(rule, **options)
        handle.optimizers = 0
        return handle

    def set_gradients(self, handle, optimizer, gradients):
        self.require("none", any(gradient is None for gradient in gradients))
        super().set_gradients(handle, optimizer, gradients)

    def step_result(self, handle, applied):
        return applied if "applied" in self.info.capabilities else None

    def create_cell(self, rule, parameters, **options):
        self.require("schedule", isinstance(options.get("learning_rate"), list))
        self.require("momentum", "momentum" in options)
        self.require("clip", "max_norm" in options)
        return super().create_cell(rule, parameters, **options)

    def outputs(self, cell, **numbers):
        unclaimed = [name for name, claim in OUTPUTS.items() if claim not in self.info.capabilities]
        return {name: value for name, value in super().outputs(cell, **numbers).items() if name not in unclaimed}


@pytest.mark.parametrize("preset", ["torch", "static"])
@pytest.mark.parametrize("claims", ["", "none loss clip", "groups norm momentum", "applied schedule counters"])
def test_drawn_cases_use_only_what_is_claimed(preset, claims):
    """The cases pass, so they are not unsupported either."""
    drawn = [case for case in CASES if case.clause.endswith("-every-sequence") and case.needs <= {*claims.split()}]
    drawn += [case for case in CASES if case.id == "both-sides-are-checked"]
    report = check(OnlyWhatItClaims(preset, 3, claims.split()), cases=drawn)
    assert failures(report) == {}
    assert report.counts == {"pass": len(drawn)}


class NewHandles(Loop):
    """Style that returns new handles and tuples, and writes the unscaled arrays over its argument."""

    def update(self, handle, finite):
        new_handle = copy.copy(handle)
        super().update(new_handle, finite)
        return new_handle

    def update_replicas(self, handles, finite):
        return tuple(self.update(handle, all(finite)) for handle in handles)

    def step_on_arrays(self, handle, tree):
        unscaled = self.unscale(handle, tree)
        finite = self.all_finite(tree) and self.all_finite(unscaled)
        for array, result in zip(arrays(tree), arrays(unscaled), strict=True):
            array[...] = result
        return self.update(handle, finite), tree


class Widening(Loop):
    """Style that returns 16-bit arrays as float32, and zeros for the arrays of a skipped step."""

    def narrowed(self, result, dtype):
        return result

    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        return handle, unscaled if self.all_finite(unscaled) else map_tree(np.zeros_like, unscaled)


class PartlyInPlace(Widening):
    """Style that overwrites the arrays whose dtype it keeps."""

    def step_on_arrays(self, handle, tree):
        handle, unscaled = super().step_on_arrays(handle, tree)
        for array, result in zip(arrays(tree), arrays(unscaled), strict=True):
            if array.dtype == result.dtype:
                array[...] = result
        return handle, unscaled


@pytest.mark.parametrize("style", [NewHandles, Widening, PartlyInPlace])
def test_other_styles_of_replicas_and_of_steps_on_arrays_pass(style):
    """The arrays that a skipped step returns are not specified."""
    cases = [
        case for case in (*replicas.CASES, *backends.CASES) if case.level == 4 and case.needs & {"replicas", "stays-on-device"}
    ]
    report = check(style(), cases=cases)
    assert failures(report) == {}
    assert report.counts["pass"] == len(cases) - 1


# --- failures


# The messages of failures, by the names of a mutant and of a case that kills it.
MESSAGES = {
    "steps-twice step-twice-is-rejected": "after call 3, step: expected step to raise an error, got none",
    "updates-in-step the-scale-is-constant-until-update": "after call 3, step: expected scale 1024.0, got 2048.0",
    "reports-every-step step-returns-whether-it-stepped": "after call 5, step: expected step to return False, got True",
    "step-does-not-check step-skips-an-overflow-of-its-own": r"after call 2, step: parameters\[0\]: .*",
    "counts-two-optimizers three-optimizers-in-every-order": (
        r"draw [^:]* \d+: after call \d+, (update|step/.) of scaler \d: expected scale .*"
    ),
    "reports-the-scaled-loss the-loss-is-unscaled": r"step 0 \(counted from 0\): loss: expected 34.0, got 34816.0",
    "clips-each-array clips-all-gradients-by-one-coefficient": (
        r"step 0 \(counted from 0\): parameters\[0\]: element 0: expected 7.6.*"
    ),
    "each-uses-its-own-flag each-rank-decides-for-all": (
        r"after step 0 \(counted from 0\), agree -\+ of group 0: expected scales .*, got \[\[512.0, 2048.0\]\]"
    ),
    "uses-the-first-mesh a-smaller-mesh-can-be-first": (
        r"after step 1 \(counted from 0\): expected scale 512.0 on every rank, got \[2048.0, 512.0, 2048.0, 512.0\]"
    ),
    "steps-before-the-reduction replicas-apply-or-skip-together": (
        r"step 1 \(counted from 0\): expected every rank to skip it, got applied \[True, False\]"
    ),
    "ends-after-the-last-stage the-last-stage-decides-for-all": r"expected 12 steps on each rank, got \[11, 12, 12\]",
    "loses-hysteresis-compiled compiled-it-moves-to-the-same-scales": (
        r"draw compiled \d+: after step \d+ \(counted from 0\) of scaler \d, .*: expected the scales .*"
    ),
    "saves-an-index-in-memory another-process-goes-on": "in another process, load raised IndexError.*",
}


@pytest.mark.parametrize("mutant_and_case", MESSAGES)
def test_a_failure_has_its_exact_message(mutant_and_case):
    """The message is one line with the call or the step."""
    mutant, case = mutant_and_case.split()
    result = result_of(case, MUTANTS[mutant].make())
    assert result.verdict == Verdict.FAIL
    assert re.fullmatch(MESSAGES[mutant_and_case], result.message)


# --- unsupported cases


def test_cases_of_a_dynamic_scale_are_unsupported_for_a_static_one():
    """With a static scale, a step may end the iteration."""
    messages = {result.case: result.message for result in check(Loop("static"), cases=calls.CASES).results}
    assert "CALLS-fixed" in messages["step-twice-is-rejected"]
    assert "CALLS-fixed" in messages["an-overflow-skips-only-its-own-step"]
    assert messages["step-unscales"] == ""


def test_exact_values_require_a_power_of_two():
    """The initial scale becomes 1500, the minimum. Cases without exact values still run."""
    capabilities = {*EVERY_LOOP} - {"division", "process"}
    report = check(Loop(LossScaleRule(3000.0, min_scale=1500.0), capabilities=capabilities), cases=CASES)
    messages = {result.case: result.message for result in report.results}
    assert "1500.0, and the expected values are exact only for powers of two" in messages["step-unscales"]
    assert "exact only for powers of two" in messages["applies-the-unscaled-gradient"]
    assert messages["reports-both-scales"] == messages["each-rank-decides-for-all"] == ""
    assert failures(report) == {}


def test_the_case_that_backs_off_until_gradients_fit_requires_a_scale_of_at_most_2_to_the_64():
    """The `min_scale` of the rule is 2**65."""
    result = result_of("the-scale-backs-off-until-the-gradients-fit", Loop(LossScaleRule(2.0**70, min_scale=2.0**65)))
    assert result.verdict == Verdict.UNSUPPORTED
    assert "from 4 to 2**64" in result.message


# --- host reads


READERS = [mutant for mutant in MUTANTS.values() if mutant.clause == "BACKENDS-no-host-sync"]


class ChangesItsHandle(OnArrays):
    """Style whose handle is a list that is changed in place."""

    def create(self, rule):
        return [*super().create(rule)]

    def next_state(self, handle, finite):
        handle[:] = super().next_state(handle, finite)
        return handle


@pytest.mark.parametrize("arrays", ["torch", "jax"])
def test_a_host_read_fails_the_case(arrays):
    """
    Mutants read by item(), in an `if`, through NumPy, in a callback, or in a shape. The message names the operation.

    Adapters that read nothing pass.
    """
    pytest.importorskip(arrays)
    readers = [mutant for mutant in READERS if mutant.make().info.arrays == arrays]
    assert len(readers) > 1
    read = r"(aten\.|numpy|cpu|debug_callback|The |Attempted |Traced)"
    for mutant in readers:
        result = result_of("a-step-on-arrays-reads-nothing", mutant.make())
        assert result.verdict == Verdict.FAIL, mutant.name
        assert re.match(rf"expected no read on the host, got \d+: {read}", result.message)
    for conforming in (OnArrays, ChangesItsHandle):
        assert result_of("a-step-on-arrays-reads-nothing", conforming(arrays)).verdict == Verdict.PASS


@pytest.mark.parametrize("arrays", ["torch", "jax"])
def test_a_missing_step_on_arrays_fails(arrays):
    """The method is claimed."""
    pytest.importorskip(arrays)
    adapter = OnArrays(arrays)
    adapter.step_on_arrays = None
    result = result_of("a-step-on-arrays-reads-nothing", adapter)
    assert result.message == "step_on_arrays is claimed but missing: the adapter has no method step_on_arrays"


@pytest.mark.parametrize("arrays", ["torch", "jax"])
def test_reads_are_not_observed_without_the_library(monkeypatch, arrays):
    """The adapter's own method reports that the library is not installed."""
    pytest.importorskip(arrays)
    adapter = OnArrays(arrays)
    monkeypatch.setitem(sys.modules, arrays, None)
    assert Observed(adapter, []).step_on_arrays == adapter.step_on_arrays


def test_host_reads_of_unobservable_arrays_are_unsupported():
    """NumPy arrays are in host memory, and reads of Paddle tensors have no hook."""
    for library, message in (("numpy", "are in host memory"), ("paddle", "host reads of paddle cannot be observed yet")):
        adapter = Loop()
        adapter.info = replace(adapter.info, arrays=library)
        with pytest.raises(Unsupported, match=message):
            Observed(adapter, [])


# --- another process


RULE = torch(init_scale=8.0, growth_interval=2)
SLOW = """
import time
from mutants.loop import Loop

class Slow(Loop):
    def load(self, rule, saved):
        time.sleep(30)

create = lambda: Slow("torch")
"""


def torch_loop(_):
    """Return an adapter that another process cannot recreate without its arguments."""
    return Loop("torch")


def unimportable(_):
    """Return an adapter whose class is local to a function."""
    return type("Nowhere", (Loop,), {})()


def slow(folder):
    """Return an adapter whose `load` sleeps. A function of a module in *folder* creates the adapter."""
    (folder / "slow_here.py").write_text(SLOW)
    return find("slow_here:create", folder)


@pytest.mark.parametrize(
    ("create", "saved", "error", "message"),
    [
        (
            torch_loop,
            lambda: None,
            Failed,
            "the saved state cannot be sent .*: a saved state must be plain data, got .* type function",
        ),
        (unimportable, {}, Unsupported, "another process cannot import the adapter: .*test_loops"),
        (torch_loop, {}, Unsupported, "another process imports a different adapter: .*mutants.loop:Loop"),
        (slow, {}, TimedOut, r"load, request 2: no reply within 0\.5 s"),
    ],
    ids=["not plain data", "not importable", "another adapter", "late reply"],
)
def test_a_case_reports_why_another_process_cannot_resume(create, saved, error, message, tmp_path):
    """The state is not plain data, the adapter cannot be imported or differs, or the reply is late."""
    with pytest.raises(error, match=message):
        scales_elsewhere(Subject(create(tmp_path)), [(RULE, saved, [])], seconds=0.5)
