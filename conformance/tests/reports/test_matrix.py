"""Reports side by side: nothing is lost, and what they share is written once."""

import json
from datetime import UTC, datetime

import pytest
from ampscale_conformance import ImplementationInfo, Report, Result, Verdict
from ampscale_conformance.model.clauses import clauses, spec_folder
from ampscale_conformance.model.verdicts import Call
from ampscale_conformance.reports import matrix
from reports import made

from ampscale import LossScaleRule, __version__

RUNS = ("runs", "wanted", "got")
REPORTS = [made.said(made.report_of(adapter)) for adapter in (made.Right(), made.Late("late"), made.Raising("raising"))]


def said(*results, **members):
    """The JSON object of a report with these results."""
    return made.said(Report(ImplementationInfo(name="x", **members), results))


def in_full(value):
    """What was made short, as reports write it."""
    if isinstance(value, dict):
        return {
            ("bits" if key == "runs" else key): unrolled(item) if key in RUNS else in_full(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [in_full(item) for item in value]
    return float.fromhex(value).hex() if isinstance(value, str) and "0x" in value[:3] and "p" in value else value


def unrolled(runs):
    return [in_full(item) for times, items in runs for item in items * times]


def whole(found, implementation, case):
    """A result as its report had it, put together again from the tables."""
    cell = implementation["results"][case]
    transcript = found.transcripts[cell["transcript"]] if "transcript" in cell else []
    calls = [in_full({"result": None, "raised": "", **found.calls[place]}) for place in transcript]
    for call in calls:
        if call["method"] == "create":  # whose rule leaves out what has its default
            call["arguments"][0] = json.loads(LossScaleRule().to_json()) | call["arguments"][0]
    return {
        "case": case,
        **found.cases[case],
        "verdict": cell["verdict"],
        "message": cell.get("message", ""),
        "calls": calls,
        "trajectory": in_full(found.trajectories[cell["trajectory"]]) if "trajectory" in cell else None,
        "snippet": cell.get("snippet", ""),
        "reproduced": cell.get("reproduced"),
    }


def test_nothing_of_a_report_is_lost():
    """Every result of every report can be read back, and what the implementation says of itself, and where it ran."""
    reports = [
        *REPORTS,
        made.said(made.every_verdict(snippet="print(1)", reproduced=False, calls=[Call("update", [{"handle": 0}, True])])),
    ]
    found = matrix.of(reports)
    for implementation, report in zip(found.implementations, reports, strict=True):
        read = [whole(found, implementation, case) for case in implementation["results"]]
        assert read == [{key: value for key, value in result.items() if key != "seconds"} for result in report["results"]]
        assert (implementation["info"], implementation["environment"]) == (report["implementation"], report["environment"])
        assert (implementation["ok"], implementation["counts"]) == (report["ok"], report["counts"])
        assert implementation["ampscale"] == report["ampscale"]
        assert [cell["seconds"] for cell in implementation["results"].values()] == pytest.approx(
            [result["seconds"] for result in report["results"]], abs=1e-4
        )


def test_what_reports_share_is_written_once():
    """A second implementation with the same answers adds no call, no transcript and no trajectory."""
    alone, twice = matrix.of(REPORTS[:1]), matrix.of([REPORTS[0], REPORTS[0]])
    assert (twice.calls, twice.transcripts, twice.trajectories) == (alone.calls, alone.transcripts, alone.trajectories)
    for table in (alone.calls, alone.transcripts, alone.trajectories):
        assert table
        assert len({json.dumps(row) for row in table}) == len(table)


def test_the_json_names_its_form():
    """And has the members of the matrix; the date is today's unless it is given."""
    read = json.loads(matrix.of(REPORTS, date="2026-02-03").to_json())
    assert (read["format"], read["version"], read["date"], read["ampscale"]) == (
        "ampscale conformance matrix",
        1,
        "2026-02-03",
        __version__,
    )
    assert set(read) > {"clauses", "cases", "calls", "transcripts", "trajectories", "implementations"}
    before = datetime.now(UTC).date().isoformat()
    assert before <= matrix.of(REPORTS).date <= datetime.now(UTC).date().isoformat()


def test_a_clause_comes_with_its_sentence_and_sources():
    """As the specification has them, Chinese among them; its link leads to the file where it stands."""
    found, law = matrix.of(REPORTS).clauses["MACHINE-growth-window"], clauses()["MACHINE-growth-window"]
    link = "spec/30-machine.md#machine-growth-window--must"
    said = {"sentence": law.sentence, "sources": list(law.sources), "link": link}
    assert found == {"chapter": "machine", "level": "must", **said}
    assert "连续" in "".join(found["sources"])
    for id in clauses():
        file = matrix.clause(id, "https://example.org/spec")["link"].removeprefix("https://example.org/spec/").partition("#")[0]
        assert (spec_folder() / file).samefile(clauses()[id].file)
    assert matrix.of(REPORTS, spec="../spec").clauses["MACHINE-max-scale"]["link"].startswith("../spec/30-machine.md#")


def test_cases_stand_in_the_order_of_reading():
    """Chapters as they are run, profiles after them, clauses as their chapter has them, what is unknown last."""
    ids = ["OTHER-thing", "PADDLE-enable", "STEP-two-modes", "SCALING-scale", "MACHINE-backoff", "MACHINE-state"]
    found = matrix.of([said(*(Result(clause, f"case-{clause}", Verdict.PASS) for clause in ids))])
    order = ["MACHINE-state", "MACHINE-backoff", "SCALING-scale", "STEP-two-modes", "PADDLE-enable", "OTHER-thing"]
    assert [case["clause"] for case in found.cases.values()] == order
    assert list(found.clauses) == order
    assert found.clauses["OTHER-thing"] == {"chapter": "other", "level": "", "sentence": "", "sources": [], "link": ""}


def test_each_implementation_has_an_id_of_its_own():
    """Made of name and version; a number where two say the same."""
    names = [("torch", "2.6"), ("torch", "2.6"), ("我的 scaler", ""), ("", ""), ("a/b", "1+c"), ("torch", "2.6")]
    found = matrix.of([made.said(Report(ImplementationInfo(name=name, version=version), ())) for name, version in names])
    assert [one["id"] for one in found.implementations] == [
        "torch-2.6",
        "torch-2.6-2",
        "我的-scaler",
        "implementation",
        "a-b-1-c",
        "torch-2.6-3",
    ]


def test_totals_are_counted_and_not_believed():
    """A report that calls itself good is counted again; the latest words on a fault hold, and there may be no report."""
    report = made.said(made.every_verdict()) | {"ok": True, "counts": {"pass": 9}}
    (one,) = matrix.of([report]).implementations
    assert not one["ok"]
    assert one["counts"] == {str(verdict): 1 for verdict in Verdict}
    old, new = (
        Result("MACHINE-max-scale", "a", Verdict.PASS, catches="old"),
        Result("MACHINE-max-scale", "a", Verdict.PASS, catches="new"),
    )
    assert matrix.of([said(old), said(new)]).cases["a"]["catches"] == "new"
    assert matrix.of([]).implementations == []


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([[]], "report 1 .* must be a JSON object, got list"),
        ([{"format": "something"}], "version 1, got 'something' of version None"),
        ([REPORTS[0] | {"version": 2}], "of version 2"),
        (
            [REPORTS[0], {key: value for key, value in REPORTS[0].items() if key != "results"}],
            "report 2 is invalid: missing member 'results'",
        ),
        ([REPORTS[0] | {"results": [{"case": "a"}]}], "missing member 'clause'"),
        (
            [said(Result("MACHINE-max-scale", "a", Verdict.PASS), Result("MACHINE-max-scale", "a", Verdict.PASS))],
            "duplicate case a",
        ),
        (
            [said(Result("MACHINE-max-scale", "a", Verdict.PASS)), said(Result("MACHINE-min-scale", "a", Verdict.PASS))],
            "report 2 is invalid: a has clause MACHINE-min-scale, but MACHINE-max-scale in another report",
        ),
        (
            [said(Result("MACHINE-max-scale", "a", Verdict.PASS)), said(Result("MACHINE-max-scale", "a", Verdict.PASS, level=1))],
            "a has level 1, but 0 in another report",
        ),
        (
            [said() | {"results": [made.said(made.every_verdict())["results"][0] | {"verdict": "skipped"}]}],
            "'skipped' is not a valid Verdict",
        ),
        ([said() | {"results": [made.said(made.every_verdict())["results"][0] | {"note": 1}]}], "got note"),
    ],
)
def test_what_cannot_stand_beside_others_is_refused(reports, words):
    """And it is told which, and why."""
    with pytest.raises(ValueError, match=words):
        matrix.of(reports)
