"""Tests of the history of the matrix and of the report of changes."""

import csv

from release import trend


def matrix(date, version, counts, **verdicts):
    """Return a matrix of one implementation."""
    results = {case.replace("_", "-"): {"verdict": verdict} for case, verdict in verdicts.items()}
    implementation = {"info": {"name": "jmp", "version": version}, "counts": counts, "results": results}
    return {"date": date, "suite": "1.0", "implementations": [implementation]}


BEFORE = matrix("2026-01-01", "1.0", {"pass": 1, "fail": 1}, grows="pass", falls="fail")
AFTER = matrix("2026-01-08", "1.1", {"pass": 2}, grows="pass", falls="pass", is_new="pass")


def test_changes_list_new_versions_and_verdicts():
    """A case that is new counts as a change."""
    assert list(trend.changes(BEFORE, AFTER)) == [
        "- jmp 1.0 → 1.1: 2 verdicts changed",
        "  - falls: fail → pass",
        "  - is-new: absent → pass",
    ]
    assert list(trend.changes(BEFORE, BEFORE)) == ["No implementation has a new version or another verdict."]


def test_the_history_grows_only_by_different_rows(tmp_path):
    """The date alone does not make a row different."""
    history = tmp_path / "trend.csv"
    for result in (BEFORE, BEFORE | {"date": "2026-01-02"}, AFTER):
        trend.extend(history, result)
    rows = list(csv.DictReader(history.read_text().splitlines()))
    assert [(row["date"], row["version"], row["pass"], row["fail"]) for row in rows] == [
        ("2026-01-01", "1.0", "1", "1"),
        ("2026-01-08", "1.1", "2", "0"),
    ]


def test_the_committed_history_contains_the_committed_matrix(tmp_path):
    """`make conform-newest` writes matrix and history; `python tools/release/trend.py` adds a matrix of `make conform-matrix`."""
    history = tmp_path / "trend.csv"
    history.write_bytes(trend.HISTORY.read_bytes())
    trend.extend(history, trend.read_matrix())
    assert history.read_bytes() == trend.HISTORY.read_bytes()
