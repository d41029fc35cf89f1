"""The mutants: each is accused by its clause, nothing in the suite is too much, and the audit would tell if it were not so."""

import linecache
import math
from pathlib import Path

import mutants
import pytest
from ampscale_conformance import check
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.case import CHAPTERS, Case, case
from ampscale_conformance.model.clauses import clauses
from mutants import mutants_of, table
from mutants.audit import audit, main
from mutants.places import SUBJECT, files_of, written
from mutants.plain import GivesUpError, Plain
from run import odd_cases

from ampscale.presets import deepspeed

ALL = mutants.MUTANTS
LONG = ("STEP-resume", "BACKENDS-no-host-sync")  # clauses whose cases start processes, or trace


def test_a_class_becomes_a_mutant():
    """It has its name, which is its own, and is made with what it claims; each chapter has some, of clauses that exist."""
    assert [mutant.name for mutant in TABLE] == ["is-seven", "is-negative", "is-fine"]
    info = TABLE[1].make().info
    assert (info.preset, info.capabilities, info.level) == ("paddle", {"resume"}, 1)
    assert len(ALL) == len({mutant.name for mutant in ALL}) >= 300
    assert all(mutants_of(chapter) for chapter in CHAPTERS)
    assert all(mutant.clause in clauses() and mutant.story and mutant.make() is not mutant.make() for mutant in ALL)
    with pytest.raises(AttributeError, match="has no attribute 'MUTANT'"):
        _ = mutants.MUTANT


def survivors(chosen):
    """Those that no case of their clause accuses."""
    cases = {mutant.clause: [case for case in every_case() if case.clause == mutant.clause] for mutant in chosen}
    return [mutant.name for mutant in chosen if all(check(mutant.make(), cases=[case]).ok for case in cases[mutant.clause])]


@pytest.mark.slow  # `make conform-audit` asks the same of all mutants
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_mutants_are_accused_by_their_clause(chapter):
    """Those that take long, since they start processes or trace with JAX and torch, are in the test below."""
    assert survivors([mutant for mutant in mutants_of(chapter) if mutant.clause not in LONG]) == []


@pytest.mark.slow
def test_slow_mutants_are_accused_by_their_clause():
    """The audit of the mutants asks them too."""
    assert survivors([mutant for mutant in ALL if mutant.clause in LONG]) == []


def test_their_root_holds_where_it_gives_up():
    """A step in which it gives up leaves the scaler as it was."""
    plain = Plain("deepspeed")
    handle = plain.create(deepspeed(init_scale=1.0, hysteresis=1))
    before = dict(vars(handle))
    with pytest.raises(GivesUpError, match=r"an overflow at a scale of 1\.0"):
        plain.update(handle, False)
    assert vars(handle) == before


# --- the audit, on a suite of three cases


def asked_of(subject):
    """The scale, of which two things are expected."""
    scale = subject.read_scale(subject.create(subject.rule()))
    subject.expect(scale > 0, "wanted a positive scale")
    subject.expect(scale != 7, "wanted any scale but 7")


def helped(subject):
    """By way of another."""
    asked_of(subject)


@case("MACHINE-state", 0, "seven: the scale is 7")
def is_not_seven(subject):
    """Sees both faults."""
    helped(subject)


@case("MACHINE-pure", 0, "seven: the scale is 7")
def is_not_seven_either(subject):
    """Sees them too, for another clause."""
    helped(subject)


TABLE, wrong = table()
TEXTS, wrong_in_words = table()


@wrong("MACHINE-state", "a test")
class IsSeven(Plain):
    """Shows 7."""

    def read_scale(self, handle):
        return 7.0


@wrong("MACHINE-state", "a test", "paddle", capabilities=("resume",))
class IsNegative(Plain):
    """Shows -1."""

    def read_scale(self, handle):
        return -1.0


@wrong("MACHINE-backoff", "a test")
class IsFine(Plain):
    """Has no fault."""


HERE = Path(__file__)


def audited(cases, table, files=(HERE,)):
    """The audit of these cases, whose expectations are in this file."""
    return audit(cases, table, files)


def lines(places):
    """The lines that places stand for."""
    return [linecache.getline(*place).strip() for place in sorted(places)]


def test_a_mutant_without_a_case_of_its_clause_is_not_caught():
    """That a case of another clause sees it does not count."""
    assert [mutant.name for mutant in audited([is_not_seven], TABLE).uncaught()] == ["is-fine"]
    assert [mutant.name for mutant in audited([is_not_seven_either], TABLE[:1]).uncaught()] == ["is-seven"]


def test_a_case_is_necessary_where_a_mutant_is_caught_by_it_alone():
    """Two cases that see the same are each too much, and so is one whose clause has no mutant."""
    again = Case("again", "MACHINE-state", 0, "", asked_of)
    assert audited([is_not_seven], TABLE).idle_cases() == []
    assert audited([is_not_seven, again], TABLE).idle_cases() == [is_not_seven, again]
    assert audited([is_not_seven, is_not_seven_either], TABLE).idle_cases() == [is_not_seven_either]


EXPECTING = [
    'subject.expect(scale > 0, "wanted a positive scale")',
    'subject.expect(scale != 7, "wanted any scale but 7")',
    "asked_of(subject)",
    "helped(subject)",
]


def test_an_expectation_is_necessary_where_a_mutant_is_caught_by_it_alone():
    """Without the mutant it is too much; every line on the way to it is one, the calls of helpers too."""
    assert lines(audited([is_not_seven], TABLE).places) == EXPECTING
    assert len(audited([is_not_seven, is_not_seven_either], TABLE).places) == len(EXPECTING) + 1
    assert audited([is_not_seven], TABLE).idle_places() == []
    assert lines(audited([is_not_seven], TABLE[1:]).idle_places()) == EXPECTING[1:2]
    again = Case("again", "MACHINE-state", 0, "", lambda subject: asked_of(subject))
    assert lines(audited([is_not_seven, again], TABLE).idle_places()) == [
        *EXPECTING[2:],
        'again = Case("again", "MACHINE-state", 0, "", lambda subject: asked_of(subject))',
    ]


ODD = Path(odd_cases.__file__)


def test_a_case_goes_on_without_an_expectation():
    """Of two that see the same each is too much."""
    idle = audited([odd_cases.is_not_seven_twice], TABLE[:1], [ODD]).idle_places()
    assert 'subject.expect(scale != 7, "wanted another scale")' in lines(idle)
    assert 'subject.expect(scale != 7, "still wanted another scale")' in lines(idle)


def test_what_keeps_a_case_from_an_error_is_necessary():
    """A case that breaks accuses nobody, and one that breaks with all its expectations is an error of the suite."""
    idle = audited([odd_cases.has_a_logarithm], TABLE[1:2], [ODD]).idle_places()
    assert 'subject.expect(scale > 0, "wanted one with a logarithm")' not in lines(idle)
    broken = Case("broken", "MACHINE-state", 0, "", lambda _: math.log2(-1))
    with pytest.raises(ValueError, match="math domain error"):
        audited([broken], TABLE)


def test_expectations_on_trees_are_places_too():
    """Of `Subject` those alone that are written there, but not the one through which all go."""
    places = audited([odd_cases.has_nothing], TABLE, [ODD, SUBJECT]).places
    assert 'subject.expect_same([None], [None], "a tree")' in lines(places)
    assert {place for place in places if place[0] == str(SUBJECT)} == written([SUBJECT])
    assert "raise Failed(message)" not in lines(places)
    assert lines(written([ODD])) == lines(place for place in places if place[0] == str(ODD))


@wrong_in_words("MACHINE-state", "a test")
class IsText(Plain):
    """Shows words."""

    def read_scale(self, handle):
        return "1024"


def test_what_the_subject_raises_by_itself_is_an_expectation():
    """Of its lines those are too much that no mutant meets."""
    found = audited([is_not_seven], TEXTS, [SUBJECT])
    met = set(found.places) - set(found.idle_places())
    assert lines(met) == ['raise Failed(f"{what}: wanted a float, got {seen(value)}")']


def test_the_files_of_a_chapter_are_its_module_and_what_it_is_made_of():
    """Those beside it that it imports, and those that they import."""
    machine = {"machine", "machine_variants", "machine_handles", "machine_lockstep"}
    assert {file.stem for file in files_of(["machine"])} == machine
    assert {file.stem for file in files_of()} >= {*CHAPTERS, *machine, "subject"}


def test_what_is_too_much_is_told(capsys, monkeypatch):
    """Each with its name or its line, and the exit status says so too."""
    monkeypatch.setattr("mutants.audit.mutants_of", lambda _: TABLE)
    monkeypatch.setattr("mutants.audit.suite.every_case", lambda: [is_not_seven, is_not_seven_either])
    monkeypatch.setattr("mutants.audit.files_of", lambda _: [HERE])
    monkeypatch.setattr("mutants.audit.CHAPTERS", ("machine",))
    assert main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "is-seven: MACHINE-state, by is-not-seven; and by 1 of other clauses",
        "is-negative: MACHINE-state, by is-not-seven; and by 1 of other clauses",
        "is-fine: MACHINE-backoff, by NOTHING; and by 0 of other clauses",
        "3 mutants, 2 cases, 5 lines of expectations",
        "0 cases are the only one, of any clause, to accuse some mutant",
        "not caught: is-fine, by MACHINE-backoff",
        "not necessary: case is-not-seven-either, MACHINE-pure",
        f"not necessary: {HERE}:{is_not_seven_either.run.__code__.co_firstlineno + 3}: helped(subject)",
    ]
    monkeypatch.setattr("mutants.audit.mutants_of", lambda _: TABLE[:2])
    monkeypatch.setattr("mutants.audit.suite.every_case", lambda: [is_not_seven])
    assert main([]) == 0
