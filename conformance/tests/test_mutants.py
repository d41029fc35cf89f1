"""Tests of the mutants and of their audit. `make conform-audit` audits all mutants and cases."""

import linecache
import math
from pathlib import Path

import mutants
import pytest
from ampscale_conformance.model.case import CHAPTERS, Case, case
from ampscale_conformance.model.clauses import clauses
from mutants import mutants_of, table
from mutants.audit import audit, main
from mutants.expectations import SUBJECT, expectations_in, files_of
from mutants.plain import Plain, PublishedScalerError
from run import odd_cases

from ampscale.presets import deepspeed

ALL = mutants.MUTANTS


def test_a_class_becomes_a_mutant():
    """The class receives the other arguments of the decorator."""
    assert [mutant.name for mutant in TABLE] == ["is-seven", "is-negative", "is-fine"]
    info = TABLE[1].make().info
    assert (info.preset, info.capabilities, info.level) == ("paddle", {"resume"}, 1)


def test_each_chapter_has_mutants_of_existing_clauses():
    """There are at least 300 mutants, with unique names. Each has a source, and makes a new object at every call."""
    assert len(ALL) == len({mutant.name for mutant in ALL}) >= 300
    assert all(mutants_of(chapter) for chapter in CHAPTERS)
    assert all(mutant.clause in clauses() and mutant.source and mutant.make() is not mutant.make() for mutant in ALL)


def test_the_package_of_the_mutants_has_no_other_lazy_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'MUTANT'"):
        _ = mutants.MUTANT


def test_an_error_leaves_the_conforming_scaler_unchanged():
    """At `min_scale`, DeepSpeed's rule raises an error instead of backing off."""
    plain = Plain("deepspeed")
    handle = plain.create(deepspeed(init_scale=1.0, hysteresis=1))
    old_state = dict(vars(handle))
    with pytest.raises(PublishedScalerError, match=r"an overflow at a scale of 1\.0"):
        plain.update(handle, False)
    assert vars(handle) == old_state


# --- the audit, on a suite of three cases


def check_scale(subject):
    """Check the scale with two expectations."""
    scale = subject.read_scale(subject.create(subject.rule()))
    subject.expect(scale > 0, "expected a positive scale")
    subject.expect(scale != 7, "expected any scale except 7")


def check_indirectly(subject):
    """Check the scale through another helper."""
    check_scale(subject)


@case("MACHINE-state", 0, "seven: the scale is 7")
def is_not_seven(subject):
    """Detect the bugs of `IsSeven` and `IsNegative`."""
    check_indirectly(subject)


@case("MACHINE-pure", 0, "seven: the scale is 7")
def is_not_seven_either(subject):
    """Detect the same bugs, for another clause."""
    check_indirectly(subject)


TABLE, breaks = table()
TEXTS, breaks_with_text = table()


@breaks("MACHINE-state", "a test")
class IsSeven(Plain):
    """Implementation that returns 7 as the scale."""

    def read_scale(self, handle):
        return 7.0


@breaks("MACHINE-state", "a test", "paddle", capabilities=("resume",))
class IsNegative(Plain):
    """Implementation that returns -1 as the scale."""

    def read_scale(self, handle):
        return -1.0


@breaks("MACHINE-backoff", "a test")
class IsFine(Plain):
    """Implementation without a bug."""


HERE = Path(__file__)


def audited(cases, table, files=(HERE,)):
    """Audit cases whose expectations are in *files*, by default in this module."""
    return audit(cases, table, files)


def lines(locations):
    """Return the source lines of locations."""
    return [linecache.getline(*location).strip() for location in sorted(locations)]


def test_a_mutant_without_a_case_of_its_clause_survives():
    """A case of another clause does not kill the mutant."""
    assert [mutant.name for mutant in audited([is_not_seven], TABLE).survivors()] == ["is-fine"]
    assert [mutant.name for mutant in audited([is_not_seven_either], TABLE[:1]).survivors()] == ["is-seven"]


def test_a_case_is_redundant_unless_it_alone_kills_a_mutant():
    """Two cases that detect the same bugs are both redundant, and so is a case whose clause has no mutant."""
    again = Case("again", "MACHINE-state", 0, "", check_scale)
    assert audited([is_not_seven], TABLE).redundant_cases() == []
    assert audited([is_not_seven, again], TABLE).redundant_cases() == [is_not_seven, again]
    assert audited([is_not_seven, is_not_seven_either], TABLE).redundant_cases() == [is_not_seven_either]


EXPECTATION_LINES = [
    'subject.expect(scale > 0, "expected a positive scale")',
    'subject.expect(scale != 7, "expected any scale except 7")',
    "check_scale(subject)",
    "check_indirectly(subject)",
]


def test_an_expectation_is_redundant_unless_it_alone_kills_a_mutant():
    """Calls of helpers that contain expectations count as expectations."""
    assert lines(audited([is_not_seven], TABLE).expectations) == EXPECTATION_LINES
    assert audited([is_not_seven], TABLE).redundant_expectations() == []
    assert lines(audited([is_not_seven], TABLE[1:]).redundant_expectations()) == EXPECTATION_LINES[1:2]
    again = Case("again", "MACHINE-state", 0, "", lambda subject: check_scale(subject))
    assert lines(audited([is_not_seven, again], TABLE).redundant_expectations()) == [
        *EXPECTATION_LINES[2:],
        'again = Case("again", "MACHINE-state", 0, "", lambda subject: check_scale(subject))',
    ]


ODD = Path(odd_cases.__file__)


def test_a_case_continues_after_a_disabled_expectation():
    """Two expectations that detect the same bug are both redundant."""
    redundant = audited([odd_cases.is_not_seven_twice], TABLE[:1], [ODD]).redundant_expectations()
    assert sum(line.startswith("subject.expect(scale != 7, ") for line in lines(redundant)) == 2


def test_an_expectation_that_prevents_an_error_is_not_redundant():
    """Without the expectation, the case raises an error and kills no mutant."""
    redundant = audited([odd_cases.has_a_logarithm], TABLE[1:2], [ODD]).redundant_expectations()
    assert not any(line.startswith("subject.expect(scale > 0, ") for line in lines(redundant))


def test_an_error_of_an_unchanged_case_propagates():
    broken = Case("broken", "MACHINE-state", 0, "", lambda _: math.log2(-1))
    with pytest.raises(ValueError, match=r"math domain error|expected a positive input"):
        audited([broken], TABLE)


def test_expectations_on_trees_are_included():
    """The expectations in `Subject` are included, except the line `raise Failed` in `expect`, which all expectations use."""
    expectations = audited([odd_cases.has_nothing], TABLE, [ODD, SUBJECT]).expectations
    assert 'subject.expect_same([None], [None], "a tree")' in lines(expectations)
    assert {location for location in expectations if location[0] == str(SUBJECT)} == expectations_in([SUBJECT])
    assert "raise Failed(message)" not in lines(expectations)
    assert lines(expectations_in([ODD])) == lines(location for location in expectations if location[0] == str(ODD))


@breaks_with_text("MACHINE-state", "a test")
class IsText(Plain):
    """Implementation that returns the scale as text."""

    def read_scale(self, handle):
        return "1024"


def test_an_error_that_subject_raises_is_an_expectation():
    """Lines of `Subject` that no mutant reaches are redundant."""
    results = audited([is_not_seven], TEXTS, [SUBJECT])
    needed = set(results.expectations) - set(results.redundant_expectations())
    [line] = lines(needed)
    assert line.startswith("raise Failed(")
    assert "a float" in line


def test_the_files_of_a_chapter_are_its_module_and_its_imports():
    """Imports are followed transitively, but only into modules of the same package."""
    machine = {"machine", "machine_drawn", "machine_lockstep", "rows", "scaling_trees"}
    assert {file.stem for file in files_of(["machine"])} == machine
    assert {file.stem for file in files_of()} >= {*CHAPTERS, *machine, "subject"}


def test_main_reports_survivors_and_redundancies(capsys, monkeypatch):
    """Survivors and redundant cases are reported by name, and the exit status is 1. Without any of them, it is 0."""
    monkeypatch.setattr("mutants.audit.mutants_of", lambda _: TABLE)
    monkeypatch.setattr("mutants.audit.suite.every_case", lambda: [is_not_seven, is_not_seven_either])
    monkeypatch.setattr("mutants.audit.files_of", lambda _: [HERE])
    monkeypatch.setattr("mutants.audit.CHAPTERS", ("machine",))
    assert main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "is-seven: MACHINE-state, killed by is-not-seven",
        "is-negative: MACHINE-state, killed by is-not-seven",
        "is-fine: MACHINE-backoff, killed by NOTHING",
        "3 mutants, 2 cases, 4 lines of expectations",
        "survives: is-fine, MACHINE-backoff",
        "redundant: case is-not-seven-either, MACHINE-pure",
    ]
    monkeypatch.setattr("mutants.audit.mutants_of", lambda _: TABLE[:2])
    monkeypatch.setattr("mutants.audit.suite.every_case", lambda: [is_not_seven])
    assert main([]) == 0
