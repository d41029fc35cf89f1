"""Versions of the suite: a run of an older version has no newer cases, and ids are stable."""

from pathlib import Path

import pytest
from ampscale_conformance import ImplementationInfo, Report, Result, Unsupported, Verdict, check
from ampscale_conformance.cases import every_case
from ampscale_conformance.model import versions
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.versions import ADDED, RENAMED, SUITE, belongs
from mutants.plain import Plain

from ampscale import presets

FROZEN = dict(line.split() for line in (Path(__file__).parent / "suite-1.0.txt").read_text().splitlines())


class Rejecting(Plain):
    """Adapter that rejects every rule except the published one, and raises an error in every step."""

    def __init__(self):
        super().__init__("torch", 0, ())

    def create(self, rule, **options):
        if rule != presets.torch():
            raise Unsupported("other constants")
        return super().create(rule)

    def update(self, handle, finite):
        raise RuntimeError("no step is supported")


def test_an_older_suite_has_no_newer_cases(monkeypatch):
    monkeypatch.setattr(versions, "SUITE", "1.10")
    monkeypatch.setattr(versions, "ADDED", {"later": "1.9"})
    assert [belongs("later", suite) for suite in ("1.0", "1.8", "1.9", "1.10")] == [False, False, True, True]
    assert belongs("first", "1.0")


@pytest.mark.parametrize("suite", ["1", "0.9", "1.x", "", "1.0.0", "99.0"], ids=repr)
def test_a_version_that_does_not_exist_is_rejected(suite):
    with pytest.raises(ValueError, match="suite"):
        belongs("first", suite)


def test_the_ids_of_suite_1_0_are_those_that_were_published():
    """A case may be renamed, but must neither disappear nor move to another clause."""
    present = {case.id: case.clause for case in every_case()}
    assert {RENAMED.get(case, case): clause for case, clause in FROZEN.items()} == {
        case: clause for case, clause in present.items() if case not in ADDED
    }
    assert set(ADDED.values()) <= {f"{SUITE.partition('.')[0]}.{minor}" for minor in range(1, 100)}


def test_a_run_with_too_few_passed_cases_is_not_ok():
    """Unsupported cases do not count as passed."""
    report = check(Rejecting(), 0)
    assert not report.ok
    assert report.too_little
    nothing = Report(ImplementationInfo(name="x"), (Result("MACHINE-skip", "a", Verdict.UNSUPPORTED),))
    assert (nothing.ok, nothing.too_little) == (False, "no case was run")
    assert check(Plain(level=0, capabilities=()), 0, min_passed=10_000).too_little.startswith("at least 10000")


def test_the_basis_of_a_clause_is_its_first_source():
    """Frameworks differ in CALLS-own-flag, and agree on CALLS-unscale-once."""
    bases = [clauses()[id].basis for id in ("MACHINE-growth-window", "CALLS-unscale-once", "CALLS-own-flag")]
    assert bases == ["document", "observed", "decision"]
