"""Cases of level 0: conforming implementations fail none, inapplicable cases are unsupported, and failures have a message."""

from functools import cache
from itertools import product

import pytest
from ampscale_conformance import ImplementationInfo, Verdict, check
from ampscale_conformance.cases import every_case
from ampscale_conformance.cases.machine import CASES
from ampscale_conformance.cases.machine_lockstep import LARGEST, LockstepRun, every_pattern, supported_rule
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.subject import Failed, Subject
from ampscale_conformance.oracle.machine import trajectory
from ampscale_conformance.run.check import run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mutants import mutants_of
from mutants.plain import EVERY_SETTING, EVERYTHING, Plain
from strategies import rules

from ampscale import LossScaleRule
from ampscale.presets import PRESETS

CLAIMS = [*PRESETS, EVERY_SETTING]
MUTANTS = {mutant.name: mutant for mutant in mutants_of("machine")}


@cache
def plain_results(rule_or_preset, capabilities=frozenset(EVERYTHING)):
    """Return the results of all cases of the chapter for the base class of all mutants."""
    return check(Plain(rule_or_preset, 1, capabilities), cases=CASES).results


class RuleAdapter:
    """Adapter of ampscale's own rule on Python numbers; raises an error if `would_raise` returns True."""

    def __init__(self, preset, capabilities=("resume", "rounding")):
        self.info = ImplementationInfo(name="rule", preset=preset, capabilities=capabilities)

    def create(self, rule):
        return rule, rule.init(like=0.0)

    def update(self, handle, finite):
        rule, state = handle
        if rule.would_raise(state, finite):
            raise ArithmeticError("the published scaler raises")
        return rule, rule.update(state, finite)

    def read_scale(self, handle):
        return handle[1].scale

    def save(self, handle):
        return handle[1]

    def load(self, rule, saved):
        return rule, saved


def failures_and_counts(adapter):
    """Return the failed cases with their messages, and the number of results by verdict."""
    report = check(adapter, cases=CASES)
    unpassed = [result for result in report.results if result.verdict is not Verdict.PASS]
    return [(result.case, result.message) for result in unpassed if result.verdict is not Verdict.UNSUPPORTED], report.counts


def find_case(id):
    """Return the case with this id."""
    return next(case for case in CASES if case.id == id)


@pytest.mark.slow
def test_every_case_passes_for_some_rule():
    """The base class of all mutants fails no case with any preset, or with `EVERY_SETTING`."""
    results = [result for claim in CLAIMS for result in plain_results(claim)]
    assert {result.verdict for result in results} == {Verdict.PASS, Verdict.UNSUPPORTED}
    assert {result.case for result in results if result.verdict is Verdict.PASS} == {case.id for case in CASES}


@given(rule=rules(), capabilities=st.sets(st.sampled_from(["resume", "rounding"])))
@example(LossScaleRule(init_scale=1.0, raise_at_or_below=100.0), {"resume"})  # every overflow is an error
@settings(max_examples=4, deadline=None)
def test_no_rule_makes_a_conforming_implementation_fail(rule, capabilities):
    """The rules and the capabilities are random."""
    assert failures_and_counts(RuleAdapter(rule, capabilities))[0] == []
    assert failures_and_counts(Plain(rule, 0, capabilities))[0] == []


def test_all_cases_have_unique_ids_existing_clauses_and_a_bug():
    """The bug that a case detects is written "name: effect". In the chapter of the machine, all cases but one are of level 0."""
    cases = every_case()
    assert len({case.id for case in cases}) == len(cases)
    assert all(case.clause in clauses() and all(case.catches.partition(": ")) for case in cases)
    assert [case.id for case in CASES if case.level] == ["tensors-and-updates-take-turns"]


@pytest.mark.slow
def test_no_case_expects_a_subnormal_scale():
    """Some libraries flush float32 numbers below 2**-126 to zero."""
    for claim in CLAIMS:
        for result in plain_results(claim):
            if result.trajectory is not None:
                assert min(result.trajectory.expected) >= 2.0**-126


class ScaleAsPythonFloat(Plain):
    """Implementation that stores the scale as a Python float and tests the float32 limit itself."""

    def rounded(self, rule, scale):
        return float(scale) if abs(scale) <= LARGEST or rule.dtype == "float64" else float("inf")

    def operand(self, handle, value):
        return float(value)


def test_a_wider_scale_fails_only_with_the_capability_rounding():
    """Without this capability, no case depends on the rounding of the scale."""
    for claim in CLAIMS[::6]:
        failures, counts = failures_and_counts(ScaleAsPythonFloat(claim, 0, ("resume",)))
        assert failures == [], claim
        assert counts["pass"] >= 3
    failures, _ = failures_and_counts(ScaleAsPythonFloat("megatron", 0, ("rounding",)))
    assert "rounds-the-factor-and-then-the-product" in dict(failures)


class SavesRemainingSteps(RuleAdapter):
    """Implementation that saves the number of finite steps until the next growth."""

    def save(self, handle):
        rule, state = handle
        return state._replace(good_steps=rule.growth_interval - state.good_steps)

    def load(self, rule, saved):
        return rule, saved._replace(good_steps=rule.growth_interval - saved.good_steps)


@pytest.mark.parametrize("preset", ["torch", "flax", "deepspeed"])
def test_a_scaler_may_save_the_remaining_steps(preset):
    """The case also loads the state with another growth interval, one step before a growth, where the number is right."""
    assert run(find_case("saves-and-loads-in-turns"), SavesRemainingSteps(preset)).verdict is Verdict.PASS


def test_a_failure_after_loading_with_another_constant_names_both_values():
    """The loaded count exceeds the new interval, so an implementation that compares for equality does not grow."""
    result = run(find_case("saves-and-loads-in-turns"), MUTANTS["compares-counts-for-equality"].make())
    assert result.message == (
        "step 0 (counted from 0) after loading with growth_interval=2 what was saved after +++ with growth_interval=4: "
        "expected scale 2048.0 (MACHINE-growth-window), got 1024.0"
    )


# The reasons why cases are unsupported, by the id of a case and a preset.
REASONS = {
    "grows-by-4 keras": "keras has no growth_factor to set",
    "grows-in-the-third-step chainer": "does not apply to chainer: it grows in every finite step",
    "grows-in-every-step-with-an-interval-of-1 flax": "does not apply to flax: its growth interval cannot be 1",
    "a-growth-at-the-top-keeps-the-scale keras": "MACHINE-skip-infinite-growth has no effect on these steps with keras",
    "grows-to-infinity-without-a-guard torch": (
        "does not apply to torch: it skips infinite growths, has a max_scale, or its scale is float64"
    ),
    "never-changes torch": "MACHINE-static has no effect on these steps with torch",
    "follows-every-pattern-of-six-steps static": "static has no growth_interval to set",
    "follows-the-published-constants fairseq": "the published growth_interval is 16384, above the limit of 3000",
    "stays-at-its-own-floor torch": "torch has no min_scale",
    "stays-at-its-own-cap jmp": "jmp has no max_scale",
    "grows-by-its-own-factor-after-an-overflow chainer": (
        "with chainer, these scales are inexact products, and rounding is not claimed"
    ),
}


@pytest.mark.parametrize("case_and_preset", REASONS)
def test_an_inapplicable_case_is_unsupported(case_and_preset):
    """The message is the reason."""
    id, preset = case_and_preset.split()
    result = run(find_case(id), Plain(preset, 0, ("resume",)))
    assert (result.verdict, result.message) == (Verdict.UNSUPPORTED, REASONS[case_and_preset])


class NeverGrows(Plain):
    """Implementation whose scale never grows."""

    def growth_due(self, handle):
        return False


def test_a_failure_has_the_step_and_the_scales():
    """The trajectory ends at the failed step."""
    result = run(find_case("grows-in-the-third-step"), NeverGrows("torch"))
    assert result.verdict is Verdict.FAIL
    assert result.message == "after step 2 (counted from 0): expected scale 2048.0, got 1024.0"
    assert (result.trajectory.finite, list(result.trajectory.expected)) == ("+++", [1024.0] * 3 + [2048.0])
    assert list(result.trajectory.got) == [1024.0] * 4


def test_a_trajectory_has_the_last_scale_of_each_step():
    """A scale that is read twice is listed once. If no scale is read after one of the steps, there is no trajectory."""
    subject = Subject(Plain("torch"))
    lockstep = LockstepRun(subject, supported_rule(subject)).compare().compare().follow("-").compare()
    assert (subject.trajectory.finite, subject.trajectory.got) == ("-", [1024.0, 512.0])
    subject.trajectory = None
    lockstep.advance("--").compare().compare()
    assert subject.trajectory is None


class NeverRaises(Plain):
    """Implementation that continues where the published scaler raises an error."""

    def would_raise(self, handle, due, scale):
        return False


def test_a_lockstep_run_expects_an_error_that_changes_nothing_where_the_published_scaler_raises():
    """After the error, the steps continue with the unchanged scale."""
    settings = {"init_scale": 4.0, "min_scale": 4.0, "hysteresis": 1}
    conforming, mutant = Subject(Plain("deepspeed")), Subject(NeverRaises("deepspeed"))
    LockstepRun(conforming, conforming.rule(**settings)).follow("-+-")
    assert [call.method for call in conforming.calls] == ["create", *["update", "read_scale"] * 3]
    with pytest.raises(Failed, match=r"in step 1 \(counted from 0\): expected an error, got none"):
        LockstepRun(mutant, mutant.rule(**settings)).follow("+-")


@pytest.mark.parametrize("hysteresis", [1, 2])
def test_every_pattern_occurs_and_the_scale_stays_near_its_start(hysteresis):
    """The trace contains all 64 patterns of six steps."""
    rule = LossScaleRule(growth_interval=1 + hysteresis, hysteresis=hysteresis)
    finite = every_pattern(rule, 6)
    for pattern in product("+-", repeat=6):
        assert "".join(pattern) in finite
    scales = [point.scale for point in trajectory(rule, [sign == "+" for sign in finite])]
    assert 2.0**9 <= min(scales) < max(scales) <= 2.0**20
