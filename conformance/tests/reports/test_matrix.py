"""Matrix of several reports: it loses nothing, and stores data that several reports share only once."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from ampscale_conformance import ImplementationInfo, Report, Result, Verdict
from ampscale_conformance.model.clauses import clauses, spec_folder
from ampscale_conformance.model.verdicts import Call
from ampscale_conformance.reports import matrix
from reports import samples

from ampscale import LossScaleRule, __version__

ANY = samples.to_dict(samples.every_verdict())["results"][0]
PASSED = Result("MACHINE-max-scale", "a", Verdict.PASS)
KEYS_OF_RUNS = ("runs", "expected", "got")
REPORTS = [samples.report_dict(adapter) for adapter in (samples.Conforming(), samples.Late("late"), samples.Raising("raising"))]


def report_of(*results, **members):
    """Return the JSON object of a report with these results."""
    return samples.to_dict(Report(ImplementationInfo(name="x", **members), results))


def expanded(value):
    """Return a shortened value of the matrix in the full form that reports have."""
    if isinstance(value, dict):
        return {
            ("bits" if key == "runs" else key): expanded_runs(item) if key in KEYS_OF_RUNS else expanded(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [expanded(item) for item in value]
    return float.fromhex(value).hex() if isinstance(value, str) and "0x" in value[:3] and "p" in value else value


def expanded_runs(runs):
    """Return the items of runs, each written as [times, items]."""
    return [expanded(item) for times, items in runs for item in items * times]


def result_from(matrix_, implementation, case):
    """Return a result in the form of a report, read from the tables of the matrix."""
    cell = implementation["results"][case]
    transcript = matrix_.transcripts[cell["transcript"]] if "transcript" in cell else []
    calls = [expanded({"result": None, "raised": "", **matrix_.calls[index]}) for index in transcript]
    for call in calls:
        if call["method"] == "create":  # the rule in the matrix has only the fields that differ from the defaults
            call["arguments"][0] = json.loads(LossScaleRule().to_json()) | call["arguments"][0]
    return {
        "case": case,
        **matrix_.cases[case],
        "verdict": cell["verdict"],
        "message": cell.get("message", ""),
        "calls": calls,
        "trajectory": expanded(matrix_.trajectories[cell["trajectory"]]) if "trajectory" in cell else None,
        "snippet": cell.get("snippet", ""),
        "reproduced": cell.get("reproduced"),
        "basis": matrix_.clauses[matrix_.cases[case]["clause"]]["basis"],
    }


def test_reports_can_be_read_back():
    """Results, information on the implementation, and the environment are equal; durations are rounded."""
    calls = [Call("update", [{"handle": 0}, True])]
    reports = [*REPORTS, samples.to_dict(samples.every_verdict(snippet="print(1)", reproduced=False, calls=calls))]
    matrix_ = matrix.of(reports)
    for implementation, report in zip(matrix_.implementations, reports, strict=True):
        results = [result_from(matrix_, implementation, case) for case in implementation["results"]]
        assert results == [{key: value for key, value in result.items() if key != "seconds"} for result in report["results"]]
        assert (implementation["info"], implementation["environment"]) == (report["implementation"], report["environment"])
        assert (implementation["ok"], implementation["counts"]) == (report["ok"], report["counts"])
        assert implementation["ampscale"] == report["ampscale"]
        assert [cell["seconds"] for cell in implementation["results"].values()] == pytest.approx(
            [result["seconds"] for result in report["results"]], abs=1e-4
        )


def test_shared_data_is_stored_once():
    """A second report with the same results adds no call, no transcript and no trajectory."""
    single, twice = matrix.of(REPORTS[:1]), matrix.of([REPORTS[0], REPORTS[0]])
    assert (twice.calls, twice.transcripts, twice.trajectories) == (single.calls, single.transcripts, single.trajectories)
    for table in (single.calls, single.transcripts, single.trajectories):
        assert table
        assert len({json.dumps(row) for row in table}) == len(table)


def test_the_json_has_its_format_and_version():
    """The date is today's."""
    earliest = datetime.now(UTC).date().isoformat()
    encoded = json.loads(matrix.of(REPORTS).to_json())
    assert earliest <= encoded["date"] <= datetime.now(UTC).date().isoformat()
    assert (encoded["format"], encoded["version"], encoded["ampscale"]) == ("ampscale conformance matrix", 1, __version__)
    assert set(encoded) > {"clauses", "cases", "calls", "transcripts", "trajectories", "implementations"}


def test_a_clause_has_its_sentence_sources_and_link():
    """Sentence and sources are those of the specification."""
    entry = matrix.of(REPORTS).clauses["MACHINE-growth-window"]
    clause = clauses()["MACHINE-growth-window"]
    link = "spec/30-machine.md#machine-growth-window--must"
    texts = {"sentence": clause.sentence, "sources": list(clause.sources), "link": link}
    assert entry == {"chapter": "machine", "level": "must", "basis": "document", **texts}
    assert "连续" in "".join(entry["sources"])


def test_the_link_of_a_clause_points_to_its_file():
    """The address of the specification can be set."""
    for id in clauses():
        file = matrix.clause(id, "https://example.org/spec")["link"].removeprefix("https://example.org/spec/").partition("#")[0]
        assert (spec_folder() / file).samefile(clauses()[id].file)
    assert matrix.of(REPORTS, spec="../spec").clauses["MACHINE-max-scale"]["link"].startswith("../spec/30-machine.md#")


def test_cases_are_in_the_order_of_the_specification():
    """Chapters are in the order of runs, then the profiles, then unknown clauses."""
    ids = ["OTHER-thing", "PADDLE-enable", "STEP-two-modes", "SCALING-scale", "MACHINE-backoff", "MACHINE-state"]
    matrix_ = matrix.of([report_of(*(Result(clause, f"case-{clause}", Verdict.PASS) for clause in ids))])
    order = ["MACHINE-state", "MACHINE-backoff", "SCALING-scale", "STEP-two-modes", "PADDLE-enable", "OTHER-thing"]
    assert [case["clause"] for case in matrix_.cases.values()] == order
    assert list(matrix_.clauses) == order
    assert matrix_.clauses["OTHER-thing"] == dict.fromkeys(("level", "basis", "sentence", "link"), "") | {
        "chapter": "other",
        "sources": [],
    }


def test_implementations_have_unique_ids():
    """An id consists of name and version, and of a number if several implementations have the same name and version."""
    names = [("torch", "2.6"), ("torch", "2.6"), ("我的 scaler", ""), ("", ""), ("a/b", "1+c"), ("torch", "2.6")]
    matrix_ = matrix.of([samples.to_dict(Report(ImplementationInfo(name=name, version=version), ())) for name, version in names])
    assert [implementation["id"] for implementation in matrix_.implementations] == [
        "torch-2.6",
        "torch-2.6-2",
        "我的-scaler",
        "implementation",
        "a-b-1-c",
        "torch-2.6-3",
    ]


def test_totals_are_recounted():
    """The totals in a report are ignored."""
    report = samples.to_dict(samples.every_verdict()) | {"ok": True, "counts": {"pass": 9}}
    (implementation,) = matrix.of([report]).implementations
    assert not implementation["ok"]
    assert implementation["counts"] == {str(verdict): 1 for verdict in Verdict}


def test_the_last_report_determines_the_bug_that_a_case_detects():
    """Versions of the suite may describe the bug differently."""
    old, new = (report_of(replace(PASSED, catches=bug)) for bug in ("old", "new"))
    assert matrix.of([old, new]).cases["a"]["catches"] == "new"


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([[]], "report 1 .* must be a JSON object, got list"),
        ([{"format": "something"}], "version 1, got 'something' of version None"),
        ([REPORTS[0] | {"version": 2}], "of version 2"),
        ([REPORTS[0], {**REPORTS[0], "results": [{}]}], "report 2 is invalid: missing member 'case'"),
        ([REPORTS[0] | {"results": [{"case": "a"}]}], "missing member 'clause'"),
        ([report_of(PASSED, PASSED)], "a report must have each case once, got a twice"),
        (
            [report_of(PASSED), report_of(Result("MACHINE-min-scale", "a", Verdict.PASS))],
            "report 2 is invalid: a has clause MACHINE-min-scale, but MACHINE-max-scale in another report",
        ),
        ([report_of(PASSED), report_of(replace(PASSED, level=1))], "a has level 1, but 0 in another report"),
        ([report_of() | {"results": [ANY | {"verdict": "skipped"}]}], "'skipped' is not a valid Verdict"),
        ([report_of() | {"results": [ANY | {"note": 1}]}], "got note"),
    ],
)
def test_invalid_and_inconsistent_reports_are_rejected(reports, message):
    """The message contains the number of the report and the reason."""
    with pytest.raises(ValueError, match=message):
        matrix.of(reports)
