"""
Compare the conformance matrix with its last committed version, and add the counts to a history: `make conform-newest`.

    python tools/release/trend.py

Appends one line per implementation to conformance/docs/trend.csv, and prints Markdown for a report: new versions, and the cases
whose verdict changed. Nothing is appended for an implementation whose version and counts are those of its last line.
"""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MATRIX = Path("conformance/docs/matrix.json")
HISTORY = ROOT / "conformance/docs/trend.csv"
COLUMNS = ("date", "implementation", "version", "suite", "pass", "fail", "error", "unsupported")
Matrix = dict[str, Any]


def main() -> None:
    """Extend the history and print the changes."""
    shown = subprocess.run(["git", "show", f"HEAD:{MATRIX.as_posix()}"], cwd=ROOT, check=True, capture_output=True)
    before, now = json.loads(shown.stdout), json.loads((ROOT / MATRIX).read_text("utf-8"))
    extend(HISTORY, now)
    sys.stdout.write("\n".join([f"# Conformance on {now['date']}", "", *changes(before, now), ""]))


def rows(matrix: Matrix) -> Iterator[dict[str, str]]:
    """Yield one row of the history for each implementation."""
    for each in matrix["implementations"]:
        named = {"implementation": each["info"]["name"], "version": each["info"]["version"]}
        counts = {name: each["counts"].get(name, 0) for name in COLUMNS[4:]}
        yield {name: str(value) for name, value in {"date": matrix["date"], **named, "suite": matrix["suite"], **counts}.items()}


def extend(history: Path, matrix: Matrix) -> None:
    """Append the rows of a matrix that differ from the last ones of their implementations in more than the date."""
    known: list[dict[str, str]] = []
    if history.exists():
        with history.open(encoding="utf-8", newline="") as file:
            known = list(csv.DictReader(file))
    last = {each["implementation"]: each for each in known}
    new = [each for each in rows(matrix) if last.get(each["implementation"], {}) | {"date": each["date"]} != each]
    with history.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*known, *new])


def changes(before: Matrix, now: Matrix) -> Iterator[str]:
    """Yield a line of Markdown for each new version, and for each case whose verdict changed."""
    known = {each["info"]["name"]: each for each in before["implementations"]}
    unchanged = True
    for each in now["implementations"]:
        name, version = each["info"]["name"], each["info"]["version"]
        old = known.get(name, {"info": {"version": "none"}, "results": {}})
        verdicts = [(case, verdict_of(old, case), verdict_of(each, case)) for case in sorted({*old["results"], *each["results"]})]
        differ = [f"  - {case}: {was} → {becomes}" for case, was, becomes in verdicts if was != becomes]
        if differ or old["info"]["version"] != version:
            unchanged = False
            yield f"- {name} {old['info']['version']} → {version}: {len(differ)} verdicts changed"
            yield from differ
    if unchanged:
        yield "No implementation has a new version or another verdict."


def verdict_of(implementation: dict[str, Any], case: str) -> str:
    """Return the verdict of a case, or "absent"."""
    return str(implementation["results"].get(case, {"verdict": "absent"})["verdict"])


if __name__ == "__main__":
    main()
