"""Conformance matrix: the results of several implementations, side by side, with the cases and their clauses."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any

from ampscale import __version__

from ..model.adapter import LEVELS
from ..model.case import CHAPTERS
from ..model.clauses import clauses, spec_folder
from ..model.verdicts import BAD, Result, Verdict
from ..model.versions import SUITE, spec_version
from .tables import DEFAULTS, Table, brief_call, brief_trajectory

_MEMBERS = (*(field.name for field in fields(Result)), "basis")


@dataclass(frozen=True)
class Matrix:
    """Results of several implementations. Data that results share is stored once, in a table, in the encoding of `tables`."""

    date: str  # of its creation in UTC, in ISO 8601
    ampscale: str  # version of the library
    clauses: dict[str, dict[str, Any]]  # by id: chapter, level, basis, sentence, sources, link
    cases: dict[str, dict[str, Any]]  # by id, in reading order: clause, level, catches
    calls: list[dict[str, Any]]  # distinct calls: `method`, `arguments`, and `result` or `raised` if present
    transcripts: list[list[int]]  # distinct lists of indices into `calls`
    trajectories: list[dict[str, Any]]  # distinct trajectories: finite flags, and expected and actual scales as `Runs`
    # For each report: id, info, suite, spec, ampscale, environment, too_little, ok, counts, and results by case: verdict,
    # seconds, and if present message, snippet, reproduced, and the indices of its transcript and trajectory.
    implementations: list[dict[str, Any]]

    def to_json(self) -> str:
        """Return the matrix as JSON text."""
        head = {"format": "ampscale conformance matrix", "version": 1, "suite": SUITE, "spec": spec_version()}
        head |= {"levels": LEVELS, "defaults": DEFAULTS}
        return json.dumps(head | vars(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def of(reports: Iterable[Mapping[str, Any]], *, spec: str = "spec") -> Matrix:
    """
    Return the matrix of several reports, in their order. Ids of implementations consist of name and version.

    The reports are JSON objects that match spec/conformance/report.schema.json, and *spec* is the prefix of links to the
    specification. Raises a ValueError if a report is invalid, has a case twice, or has a case under another clause or level than
    an earlier report.
    """
    tables = _Tables()
    implementations: list[dict[str, Any]] = []
    for number, report in enumerate(reports, start=1):
        try:
            _check_format(report)
            column = tables.column(report)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"missing member {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"report {number} is invalid: {problem}") from error
        implementations.append({"id": _id(report, {known["id"] for known in implementations}), **column})
    cases = dict(sorted(tables.cases.items(), key=lambda item: _sort_key(item[1]["clause"])))
    clause_table = {case["clause"]: clause(case["clause"], spec) for case in cases.values()}
    date = datetime.now(UTC).date().isoformat()
    rows = tables.calls.rows, tables.transcripts.rows, tables.trajectories.rows
    return Matrix(date, __version__, clause_table, cases, *rows, implementations)


def clause(id: str, spec: str = "spec") -> dict[str, Any]:
    """Return a clause as a JSON object. An unknown one has empty members and the chapter "other", or "claims" for the id ""."""
    known = clauses().get(id)
    if known is None:
        return {"chapter": "other" if id else "claims", "level": "", "basis": "", "sentence": "", "sources": [], "link": ""}
    anchor = re.sub(r"[^\w\- ]", "", f"{known.id} · {known.level}".lower()).replace(" ", "-")  # GitHub's rule
    members = {name: getattr(known, name) for name in ("chapter", "level", "basis", "sentence")}
    link = f"{spec}/{known.file.relative_to(spec_folder()).as_posix()}#{anchor}"
    return {**members, "sources": list(known.sources), "link": link}


class _Tables:
    """Tables of the data that reports share."""

    def __init__(self) -> None:
        self.cases: dict[str, dict[str, Any]] = {}
        self.calls, self.transcripts, self.trajectories = Table(), Table(), Table()

    def column(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return one report with indices into the tables."""
        results: dict[str, dict[str, Any]] = {}
        for result in report["results"]:
            if result["case"] in results:
                raise ValueError(f"a report must have each case once, got {result['case']} twice")
            results[result["case"]] = self._cell(result)
        counter = Counter(cell["verdict"] for cell in results.values())
        return {
            "info": report["implementation"],
            **{name: report[name] for name in ("suite", "spec", "ampscale", "environment", "too_little")},
            "ok": not report["too_little"] and not any(verdict in BAD for verdict in counter),
            "counts": {str(verdict): counter[verdict] for verdict in Verdict if counter[verdict]},
            "results": results,
        }

    def _cell(self, result: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := set(result) - set(_MEMBERS):
            raise ValueError(f"a result must have only {', '.join(_MEMBERS)}, got {', '.join(sorted(unknown))}")
        self._add_case(result)
        cell: dict[str, Any] = {"verdict": str(Verdict(result["verdict"])), "seconds": round(result["seconds"], 4)}
        cell |= {name: result[name] for name in ("message", "snippet") if result[name]}
        if result["reproduced"] is not None:
            cell["reproduced"] = result["reproduced"]
        if result["calls"]:
            cell["transcript"] = self.transcripts.index([self.calls.index(brief_call(call)) for call in result["calls"]])
        if result["trajectory"] is not None:
            cell["trajectory"] = self.trajectories.index(brief_trajectory(result["trajectory"]))
        return cell

    def _add_case(self, result: Mapping[str, Any]) -> None:
        """Add the case. If an earlier report has it, check that clause and level are equal, and replace `catches`."""
        case = {name: result[name] for name in ("clause", "level", "catches")}
        known = self.cases.setdefault(result["case"], case)
        for name in ("clause", "level"):
            if known[name] != case[name]:
                raise ValueError(f"{result['case']} has {name} {case[name]}, but {known[name]} in another report")
        known["catches"] = case["catches"]


def _check_format(report: Mapping[str, Any]) -> None:
    if not isinstance(report, Mapping):
        raise TypeError(f"a report must be a JSON object, got {type(report).__name__}")
    actual = (report.get("format"), report.get("version"))
    if actual != ("ampscale conformance report", 1):
        raise ValueError(f"expected an 'ampscale conformance report' of version 1, got {actual[0]!r} of version {actual[1]!r}")


def _id(report: Mapping[str, Any], known_ids: set[str]) -> str:
    """Return the name and version of the implementation with dashes, and a number if this id is known."""
    info = report["implementation"]
    slug = re.sub(r"[^\w.]+", "-", f"{info['name']} {info['version']}").strip("-") or "implementation"
    return next(id for id in chain([slug], (f"{slug}-{number}" for number in count(2))) if id not in known_ids)


def _sort_key(clause_id: str) -> tuple[int, int]:
    """Return a sort key: chapters in the order of `CHAPTERS`, then profiles and unknown clauses; then reading order."""
    chapter = clause(clause_id)["chapter"]
    chapters, ids = [*CHAPTERS, chapter], [*clauses(), clause_id]  # another chapter or clause comes last
    return chapters.index(chapter), ids.index(clause_id)
