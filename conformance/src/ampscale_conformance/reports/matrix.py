"""Reports side by side: the cases, their clauses, and what came of each with every implementation."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ampscale import __version__

from ..model.adapter import LEVELS
from ..model.case import CHAPTERS
from ..model.clauses import clauses, spec_folder
from ..model.verdicts import BAD, Verdict
from .tables import DEFAULTS, Table, brief_call, brief_trajectory

_MEMBERS = ("clause", "case", "verdict", "message", "level", "catches", "calls", "trajectory", "seconds", "snippet", "reproduced")


@dataclass(frozen=True)
class Matrix:
    """
    Reports side by side. What many results share is written once, and told by its place in a table; and shortly: see `tables`.

    Args:
        date: When it was made, as ISO 8601 writes a day.
        ampscale: The version of the suite whose clauses these are.
        clauses: By id: chapter, level, sentence, sources, link.
        cases: By id, in the order of reading: clause, level, catches.
        calls: Distinct calls: method, arguments; result and raised where there is one.
        transcripts: Distinct lists of places in `calls`.
        trajectories: Distinct trajectories: finite, and wanted and got in runs.
        implementations: For each report: id, info, ampscale, environment, ok, counts, and results by case: verdict, seconds, and
            where there is one: message, snippet, reproduced, and the places of its transcript and its trajectory.
    """

    date: str
    ampscale: str
    clauses: dict[str, dict[str, Any]]
    cases: dict[str, dict[str, Any]]
    calls: list[dict[str, Any]]
    transcripts: list[list[int]]
    trajectories: list[dict[str, Any]]
    implementations: list[dict[str, Any]]

    def to_json(self) -> str:
        """The matrix as a JSON object."""
        head = {"format": "ampscale conformance matrix", "version": 1, "levels": LEVELS, "defaults": DEFAULTS}
        return json.dumps(head | asdict(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def of(reports: Iterable[Mapping[str, Any]], *, date: str | None = None, spec: str = "spec") -> Matrix:
    """
    Reports side by side, in their order.

    Args:
        reports: JSON objects of the form of spec/conformance/report.schema.json, as `json.loads(report.to_json())`.
        date: The day, as ISO 8601 writes it; today's in UTC by default.
        spec: Where the specification is read: what stands before "30-machine.md" in a link.

    Returns:
        The matrix. Its implementations have ids of their own, made of name and version.

    Raises:
        ValueError: One is no such report, tells a case twice, or has a case under another clause or level than another report.
    """
    tables = _Tables()
    implementations: list[dict[str, Any]] = []
    for number, report in enumerate(reports, start=1):
        try:
            _check_form(report)
            column = tables.column(report)
        except (KeyError, TypeError, ValueError) as error:
            lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"report {number} cannot be put beside others: {lacks}") from error
        implementations.append({"id": _own(_slug(report), {known["id"] for known in implementations}), **column})
    cases = dict(sorted(tables.cases.items(), key=lambda item: _rank(item[1]["clause"])))
    said = {case["clause"]: clause(case["clause"], spec) for case in cases.values()}
    today = datetime.now(UTC).date().isoformat() if date is None else date
    return Matrix(
        today, __version__, said, cases, tables.calls.rows, tables.transcripts.rows, tables.trajectories.rows, implementations
    )


def clause(id: str, spec: str = "spec") -> dict[str, Any]:
    """A clause in JSON's words; without words where this specification does not have it."""
    found = clauses().get(id)
    if found is None:
        return {"chapter": "other" if id else "claims", "level": "", "sentence": "", "sources": [], "link": ""}
    heading = f"{found.id} · {found.level}"
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")  # as GitHub makes it
    file = found.file.relative_to(spec_folder()).as_posix()
    return {
        "chapter": found.chapter,
        "level": found.level,
        "sentence": found.sentence,
        "sources": list(found.sources),
        "link": f"{spec}/{file}#{anchor}",
    }


def escaped(found: re.Match[str]) -> str:
    """What was found, as Python escapes it."""
    return found[0].encode("unicode_escape").decode("ascii")


class _Tables:
    """What the reports share."""

    def __init__(self) -> None:
        self.cases: dict[str, dict[str, Any]] = {}
        self.calls, self.transcripts, self.trajectories = Table(), Table(), Table()

    def column(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """One report, with places for what it shares with others."""
        results: dict[str, dict[str, Any]] = {}
        for result in report["results"]:
            if result["case"] in results:
                raise ValueError(f"it tells the case {result['case']} twice")
            results[result["case"]] = self._cell(result)
        found = Counter(cell["verdict"] for cell in results.values())
        return {
            "info": report["implementation"],
            "ampscale": report["ampscale"],
            "environment": report["environment"],
            "ok": not any(verdict in BAD for verdict in found),
            "counts": {str(verdict): found[verdict] for verdict in Verdict if found[verdict]},
            "results": results,
        }

    def _cell(self, result: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := set(result) - set(_MEMBERS):
            raise ValueError(f"a result has {', '.join(_MEMBERS)}, got {', '.join(sorted(unknown))}")
        self._meet(result)
        cell: dict[str, Any] = {"verdict": str(Verdict(result["verdict"])), "seconds": round(result["seconds"], 4)}
        cell |= {name: result[name] for name in ("message", "snippet") if result[name]}
        if result["reproduced"] is not None:
            cell["reproduced"] = result["reproduced"]
        if result["calls"]:
            cell["transcript"] = self.transcripts.place([self.calls.place(brief_call(call)) for call in result["calls"]])
        if result["trajectory"] is not None:
            cell["trajectory"] = self.trajectories.place(brief_trajectory(result["trajectory"]))
        return cell

    def _meet(self, result: Mapping[str, Any]) -> None:
        """Notes the case, which has to be the one that other reports know by this id; its latest words hold."""
        said = {name: result[name] for name in ("clause", "level", "catches")}
        known = self.cases.setdefault(result["case"], said)
        for name in ("clause", "level"):
            if known[name] != said[name]:
                raise ValueError(f"{result['case']} is of {name} {said[name]}, and of {known[name]} in another report")
        known["catches"] = said["catches"]


def _check_form(report: Mapping[str, Any]) -> None:
    if not isinstance(report, Mapping):
        raise TypeError(f"it must be a JSON object, got {type(report).__name__}")
    form = (report.get("format"), report.get("version"))
    if form != ("ampscale conformance report", 1):
        raise ValueError(f"it must be an 'ampscale conformance report' of version 1, got {form[0]!r} of version {form[1]!r}")


def _slug(report: Mapping[str, Any]) -> str:
    info = report["implementation"]
    return re.sub(r"[^\w.]+", "-", f"{info['name']} {info['version']}").strip("-") or "implementation"


def _own(slug: str, taken: set[str]) -> str:
    """*slug*, or with the first number that makes it its own."""
    return next(own for own in (slug, *(f"{slug}-{number}" for number in range(2, len(taken) + 3))) if own not in taken)


def _rank(clause_id: str) -> tuple[int, int]:
    """Chapters as they are run, then the profiles and what is unknown; within a chapter as it is read."""
    reading = {known: place for place, known in enumerate(clauses())}
    place = reading.get(clause_id, len(reading))
    chapter = clauses()[clause_id].chapter if clause_id in reading else ""
    return (CHAPTERS.index(chapter) if chapter in CHAPTERS else len(CHAPTERS), place)
