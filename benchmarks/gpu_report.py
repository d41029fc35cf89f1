"""Results of `gpu_check.sh`: a file that is written again after each row, and its rows and bounds as text."""

import json
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from gpu_bounds import bounds
from machine import slug

from ampscale.files import write_atomically

FAILED = ("failed", "error")
OUTCOMES = ("passed", "skipped", *FAILED)  # from the best to the worst
RED, PLAIN = ("\033[31m", "\033[0m") if sys.stdout.isatty() else ("", "")

Row = dict[str, Any]


class Report:
    """
    Results, which are printed as soon as they arrive. Each row is also saved at once, in a file named after the device.

    Args:
        device: Name of the device.
        failures: Failures so far; more are appended.
        folder: Folder of the file.
    """

    def __init__(self, device: str, failures: list[str], folder: Path) -> None:
        self.path = folder / f"gpu-{slug(device)}.json"
        self.failures = failures
        self.rows: list[Row] = []
        self.skipped: list[str] = []
        self.tests: dict[str, Any] = {**dict.fromkeys(OUTCOMES, 0), "outcomes": {}}  # counts, and outcomes by name
        date = datetime.now(UTC).isoformat(timespec="seconds")
        self._start = {"date": date, "versions": {"python": sys.version.split()[0], **versions()}, "device": device}
        folder.mkdir(parents=True, exist_ok=True)

    def write(self) -> None:
        """Write the file."""
        results = {"tests": self.tests, "bounds": bounds(self.rows, self.tests), "failures": self.failures}
        content = {**self._start, **results, "skipped": self.skipped, "rows": self.rows}
        write_atomically(self.path, json.dumps(content, indent=1) + "\n")

    def add_row(self, line: str) -> None:
        """Add a line that gpu_rows.py printed: a row, a failure, or a skipped shape. Other lines are only printed."""
        row = parsed(line)
        if not isinstance(row, dict):
            print(line, flush=True)
            return
        if "failure" in row:
            self.failures.append(row["failure"])
        elif "skipped" in row:
            self.skipped.append(row["skipped"])
        else:
            self.rows.append(row)
        if "not_replayed" in row:
            self.failures.append(f"{described(row)}: not replayed: {row['not_replayed']}")
        print(text_of(row) if "ms" in row else line, flush=True)
        self.write()

    def add_test(self, line: str) -> None:
        """Add a line that pytest -v printed. Lines of tests that start, pass or are skipped are not printed again."""
        outcome = re.search(r"\b(PASSED|SKIPPED|FAILED|ERROR)\b", line)
        test = re.search(r"\.py(?:::\w+)*::(\w+)", line) or re.search(r"^_* ?ERROR collecting (\S+)", line)
        kind = outcome[1].lower() if outcome and test else None
        if kind:
            self.tests[kind] += 1
            outcomes = self.tests["outcomes"]
            outcomes[test[1]] = max(outcomes.get(test[1], "passed"), kind, key=OUTCOMES.index)
        if kind in FAILED or ".py::" not in line:
            print(line, flush=True)

    def failed(self) -> list[str]:
        """Return the parts that failed: bounds that are not met, tests, and failures to measure."""
        missed = [f"bound {bound['id']}" for bound in bounds(self.rows, self.tests) if bound["met"] is False]
        tests = [f"test {name}" for name, outcome in self.tests["outcomes"].items() if outcome in FAILED]
        return [*missed, *tests, *self.failures]


def parsed(line: str) -> Any:
    """Return the JSON value of a line; None if it is something else, such as a warning that a library prints."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def versions() -> dict[str, str]:
    """Return the versions of the measured packages, by name. A package whose metadata is broken has no name and is left out."""
    names = re.compile(r"ampscale|numpy|ml.dtypes|array.api.compat|cupy.*|torch|jax(lib)?|nvidia.cuda.(runtime|nvrtc).*")
    packages = (dict(distribution.metadata or {}) for distribution in distributions())
    return {package["Name"]: package.get("Version") for package in packages if names.fullmatch(package.get("Name") or "")}


def table(rows: list[Row]) -> str:
    """Return the rows as a text table, with the operations of a first and of a later call."""
    labels = f"{'library':8}{'implementation':20}{'function':36}{'arrays':28}"
    return "\n".join([f"{labels}{'ms':>10}{'replayed':>10}{'over copy':>11}  operations", *map(text_of, rows)])


def text_of(row: Row) -> str:
    """Return a row as a line of the table."""
    arrays = f"{row['arrays']} {row['dtype']}"
    replayed = f"{row['replayed_ms']:10.4f}" if "replayed_ms" in row else " " * 10
    return (
        f"{row['library']:8}{row['implementation']:20}{row['function']:36}{arrays:28}{row['ms']:10.4f}{replayed}"
        f"{row['over_copy']:11.2f}  {operations_text(row.get('operations'))}"
        f"{operations_text(row.get('first_call'), ', first call ')}"
    )


def described(row: Row) -> str:
    """Return a description of a row."""
    return ", ".join(row[key] for key in ("library", "implementation", "function", "arrays", "dtype"))


def operations_text(operations: dict[str, int] | int | None, prefix: str = "") -> str:
    """Return *prefix* and the counts of operations as text; "" if they were not counted."""
    if operations is None:
        return ""
    counts = operations if isinstance(operations, dict) else {"operations": operations}
    return prefix + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def verdict(report: Report) -> str:
    """Return a summary: bounds not met (the most important last), not measured, and met; tests; the file; failed parts."""
    results = bounds(report.rows, report.tests)
    missed = [bound for bound in reversed(results) if bound["met"] is False]
    lines = [f"{RED}NOT MET  {bound['id']}: {shown(bound['value'])}, {bound['bound']}{PLAIN}" for bound in missed]
    unknown = [bound["id"] for bound in results if bound["met"] is None]
    if unknown:
        lines.append(f"{len(unknown)} not measured: {', '.join(unknown[:8])}{' ...' if len(unknown) > 8 else ''}")
    lines.append(f"{sum(bound['met'] is True for bound in results)} of {len(results)} bounds met")
    lines.append("tests: " + ", ".join(f"{report.tests[kind]} {kind}" for kind in OUTCOMES))
    lines.append(f"written: {report.path}")
    lines += [f"{RED}FAILED  {part}{PLAIN}" for part in report.failed() if not part.startswith("bound ")]
    return "\n".join(lines)


def shown(value: float | str) -> str:
    """Return a number as text with four significant digits, and a text unchanged."""
    return value if isinstance(value, str) else f"{value:.4g}"
