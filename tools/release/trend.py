"""
Compare the conformance matrix with its last committed version, and add the counts to a history: `make conform-newest`.

    python tools/release/trend.py

Appends one line per implementation to conformance/docs/trend.csv, and prints Markdown for a report: new versions, and the cases
whose verdict changed. Nothing is appended for an implementation whose version and counts equal those in its last line.
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
    committed = subprocess.run(["git", "show", f"HEAD:{MATRIX.as_posix()}"], cwd=ROOT, check=True, capture_output=True)
    old, new = json.loads(committed.stdout), read_matrix()
    extend(HISTORY, new)
    sys.stdout.write("\n".join([f"# Conformance on {new['date']}", "", *changes(old, new), ""]))


def read_matrix() -> Matrix:
    """Return the matrix in the working tree. Its calls, which take 150 MB of memory, are replaced by empty dicts."""
    content = (ROOT / MATRIX).read_bytes()
    matrix: Matrix = json.loads(content, object_hook=lambda members: {} if "method" in members else members)
    return matrix


def rows(matrix: Matrix) -> Iterator[dict[str, str]]:
    """Yield one row of the history for each implementation."""
    for implementation in matrix["implementations"]:
        info, counts = implementation["info"], implementation["counts"]
        values = (matrix["date"], info["name"], info["version"], matrix["suite"], *(counts.get(name, 0) for name in COLUMNS[4:]))
        yield dict(zip(COLUMNS, map(str, values), strict=True))


def extend(history: Path, matrix: Matrix) -> None:
    """Append the rows of a matrix that differ from the last row of their implementation in more than the date."""
    old = list(csv.DictReader(history.read_text("utf-8").splitlines())) if history.exists() else []
    last = {row["implementation"]: row for row in old}
    new = [row for row in rows(matrix) if last.get(row["implementation"], {}) | {"date": row["date"]} != row]
    with history.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*old, *new])


def changes(old_matrix: Matrix, new_matrix: Matrix) -> Iterator[str]:
    """Yield a line of Markdown for each new version, and for each case whose verdict changed."""
    old_by_name = {implementation["info"]["name"]: implementation for implementation in old_matrix["implementations"]}
    unchanged = True
    for new in new_matrix["implementations"]:
        name, version = new["info"]["name"], new["info"]["version"]
        old = old_by_name.get(name, {"info": {"version": "none"}, "results": {}})
        verdicts = [(case, verdict_of(old, case), verdict_of(new, case)) for case in sorted({*old["results"], *new["results"]})]
        lines = [f"  - {case}: {old_verdict} → {verdict}" for case, old_verdict, verdict in verdicts if old_verdict != verdict]
        if lines or old["info"]["version"] != version:
            unchanged = False
            yield f"- {name} {old['info']['version']} → {version}: {len(lines)} verdicts changed"
            yield from lines
    if unchanged:
        yield "No implementation has a new version or another verdict."


def verdict_of(implementation: dict[str, Any], case: str) -> str:
    """Return the verdict of a case, or "absent"."""
    return str(implementation["results"].get(case, {"verdict": "absent"})["verdict"])


if __name__ == "__main__":
    main()
