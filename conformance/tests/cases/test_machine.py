"""The cases of level 0: nobody who is right is accused, each says what it is named for, and a failure tells what was wanted."""

from functools import cache
from itertools import product

import pytest
from ampscale_conformance import ImplementationInfo, Verdict, check
from ampscale_conformance.cases.machine import CASES
from ampscale_conformance.cases.machine_lockstep import LARGEST, LockstepRun, every_pattern, supported_rule, trace
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.subject import Failed, Subject
from ampscale_conformance.oracle.machine import trajectory
from ampscale_conformance.run.check import run
from drawn_rules import RULES
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants.plain import EVERY_SETTING, EVERYTHING, Plain

from ampscale import LossScaleRule
from ampscale.presets import PRESETS

CLAIMS = [*PRESETS, EVERY_SETTING]


@cache
def results_of_a_plain_one(claim, capabilities=frozenset(EVERYTHING)):
    """What comes of every case, for the root of all mutants."""
    return check(Plain(claim, 0, capabilities), cases=CASES).results


class ByTheRule:
    """The package's own machine on Python's numbers: `init`, `update`, and what `would_raise`."""

    def __init__(self, preset, capabilities=("resume", "rounding")):
        self.info = ImplementationInfo(name="by the rule", preset=preset, capabilities=capabilities)

    def create(self, rule):
        return rule, rule.init(like=0.0)

    def update(self, handle, finite):
        rule, state = handle
        if rule.would_raise(state, finite):
            raise ArithmeticError("the published scaler gives up")
        return rule, rule.update(state, finite)

    def read_scale(self, handle):
        return handle[1].scale

    def save(self, handle):
        return handle[1]

    def load(self, rule, saved):
        return rule, saved


def accused(adapter):
    """What is held against it, and how many cases it passes."""
    report = check(adapter, cases=CASES)
    others = [result for result in report.results if result.verdict is not Verdict.PASS]
    return [(result.case, result.message) for result in others if result.verdict is not Verdict.UNSUPPORTED], report.counts


def of(id):
    """The case of this name."""
    return next(case for case in CASES if case.id == id)


def test_every_case_is_asked_of_somebody():
    """There is no case which no preset and no rule is asked, and the root of all mutants is accused of none."""
    results = [result for claim in CLAIMS for result in results_of_a_plain_one(claim)]
    assert {result.verdict for result in results} == {Verdict.PASS, Verdict.UNSUPPORTED}
    assert {result.case for result in results if result.verdict is Verdict.PASS} == {case.id for case in CASES}


@given(rule=RULES, capabilities=st.sets(st.sampled_from(["resume", "rounding"])))
@settings(max_examples=15, deadline=None)
def test_nobody_is_accused_by_any_rule(rule, capabilities):
    """Whatever rule is supported_rule, and with whatever capabilities: neither the package nor the root of all mutants."""
    assert accused(ByTheRule(rule, capabilities))[0] == []
    assert accused(Plain(rule, 0, capabilities))[0] == []


def test_each_case_has_a_clause_and_a_name_of_its_own():
    """A case names a clause of the specification, and the fault with what it does."""
    assert len({case.id for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.clause in clauses()
        name, colon, does = case.catches.partition(": ")
        assert name
        assert colon
        assert does
        assert case.level == 0


def test_nothing_is_asked_below_the_smallest_normal_number():
    """Some libraries flush what is smaller to zero: no scale is wanted below 2**-126, by no claim."""
    for claim in CLAIMS:
        for result in results_of_a_plain_one(claim):
            if result.trajectory is not None:
                assert min(result.trajectory.wanted) >= 2.0**-126


class InWideFloats(Plain):
    """It holds its scale as a Python float, and looks for the end of float32 by itself."""

    def rounded(self, rule, scale):
        return float(scale) if abs(scale) <= LARGEST or rule.dtype == "float64" else float("inf")

    def operand(self, handle, value):
        return float(value)


def test_a_scale_in_a_wider_float_is_right_without_rounding():
    """Who does not claim to round is asked nothing in which rounding shows, by any preset; who does claim it is."""
    for claim in CLAIMS[::3]:
        failures, counts = accused(InWideFloats(claim, 0, ("resume",)))
        assert failures == [], claim
        assert counts["pass"] >= 3
    failures, _ = accused(InWideFloats("megatron", 0, ("rounding",)))
    assert "rounds-the-factor-and-then-the-product" in dict(failures)


@pytest.mark.parametrize(
    ("id", "claim", "reason"),
    [
        ("grows-by-4", "keras", "keras has no growth_factor to set"),
        ("grows-in-the-third-step", "chainer", "does not apply to chainer: it grows in every finite step"),
        ("grows-in-every-step-with-an-interval-of-1", "flax", "does not apply to flax: its growth interval cannot be 1"),
        (
            "a-growth-at-the-top-keeps-the-scale",
            "keras",
            "with keras, MACHINE-skip-infinite-growth determines none of these steps",
        ),
        (
            "grows-to-infinity-without-a-guard",
            "torch",
            "does not apply to torch: it skips infinite growths, has a max_scale, or its scale is float64",
        ),
        ("never-moves", "torch", "with torch, MACHINE-static determines none of these steps"),
        ("follows-every-pattern-of-six-steps", "static", "static has no growth_interval to set"),
        ("two-scalers-do-not-share-their-state", "static", "with static, MACHINE-backoff determines none of these steps"),
        ("follows-every-pattern-of-six-steps-between-bounds", "torch", "torch has no bound to set"),
        ("stays-at-its-own-floor", "torch", "torch has no min_scale of its own"),
        ("stays-at-its-own-cap", "jmp", "jmp has no max_scale of its own"),
        (
            "grows-by-its-own-factor-after-an-overflow",
            "chainer",
            "with chainer, these scales are inexact products, and rounding is not claimed",
        ),
        (
            "the-scale-is-saved",
            LossScaleRule(init_scale=2.0, raise_at_or_below=2.0**30),
            "under the rule the scaler raises an error before it is saved",
        ),
    ],
)
def test_a_case_that_would_say_nothing_is_not_asked(id, claim, reason):
    """Where the claim has no such thing, the verdict is unsupported and says why."""
    result = run(of(id), Plain(claim, 0, ("resume",)))
    assert (result.verdict, result.message) == (Verdict.UNSUPPORTED, reason)


class Stuck(Plain):
    """Never grows."""

    def growth_due(self, handle):
        return False


def test_a_failure_tells_what_was_wanted_and_by_which_clause():
    """The step, both scales, the clause; and the walk as far as it came."""
    result = run(of("grows-in-the-third-step"), Stuck("torch"))
    assert result.verdict is Verdict.FAIL
    assert result.message == "after step 3: expected scale 2048.0 (MACHINE-growth-window), got 1024.0"
    assert (result.trajectory.finite, list(result.trajectory.wanted)) == ("+++", [1024.0] * 3 + [2048.0])
    assert list(result.trajectory.got) == [1024.0] * 4


def test_a_walk_shows_the_last_reading_of_each_step():
    """A scale that is read twice stands once in the trajectory, and one that is not read leaves none."""
    subject = Subject(Plain("torch"))
    walk = LockstepRun(subject, supported_rule(subject, "")).compare().compare().follow("-").compare()
    assert (subject.trajectory.finite, subject.trajectory.got) == ("-", [1024.0, 512.0])
    subject.trajectory = None
    walk.advance("--").compare().compare()
    assert subject.trajectory is None


class NeverGivesUp(Plain):
    """Goes on where the published scaler raises."""

    def would_raise(self, handle, due, scale):
        return False


def test_a_walk_ends_where_the_published_scaler_gives_up():
    """It has to raise there, and is asked nothing afterwards."""
    settings = {"init_scale": 4.0, "min_scale": 4.0, "hysteresis": 1}
    right, wrong = Subject(Plain("deepspeed")), Subject(NeverGivesUp("deepspeed"))
    walk = LockstepRun(right, right.rule(**settings)).follow("-+++")
    assert [call.method for call in right.calls] == ["create", "update"]
    assert walk.compare() is walk
    with pytest.raises(Failed, match="at the start: expected an error in the next step, got none"):
        LockstepRun(wrong, wrong.rule(**settings)).follow("-")


@pytest.mark.parametrize("rule", [LossScaleRule(growth_interval=2), LossScaleRule(growth_interval=3, hysteresis=2)])
def test_every_pattern_occurs_and_the_scale_stays_near(rule):
    """All 64 patterns of six steps follow one another, within a few powers of two of the start."""
    finite = every_pattern(rule, 6)
    for pattern in product("+-", repeat=6):
        assert "".join(pattern) in finite
    scales = [point.scale for point in trajectory(rule, [sign == "+" for sign in finite])]
    assert 2.0**9 <= min(scales) < max(scales) <= 2.0**20


def test_a_row_of_the_table_is_a_case():
    """What it needs, and the steps after which it is saved."""
    row = trace("MACHINE-backoff/a", "-+", "b: c", "resume", saved_after=1, init_scale=8.0)
    assert (row.id, row.clause, row.level, row.catches, row.needs) == ("a", "MACHINE-backoff", 0, "b: c", {"resume"})
    result = run(row, Plain("torch"))
    called = "create read_scale update read_scale save load read_scale update read_scale"
    assert [call.method for call in result.calls] == called.split()
    assert result.trajectory.wanted[0] == 8.0
