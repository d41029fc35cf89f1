"""
Benchmark ampscale against other implementations, and write one table and one JSON file.

    python benchmarks/bench.py [--all | --only PATTERN] [--json PATH] [--quick] [--list] [--document]

Each row measures ampscale, other implementations and an in-place-multiply baseline alternately in one process, and reports
ratios of medians with their spread. By default, the rows are those that have targets. docs/performance.md explains the rows.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import document
import machine
import sections
import table
import targets
from specs import Spec, select

from ampscale.files import write_atomically

VERSION = 3  # of the schema of result files


def main() -> int:
    """Run the command; return 1 if a target is missed without a reason or a section fails."""
    options = parse_options()
    if options.work:
        sections.work(json.load(sys.stdin), options.quick, sys.stdout)
        return 0
    if options.document:
        document.update()
        return 0
    specs = select(sections.all_specs(), options.only)
    if not (options.all or options.only):
        specs = [spec for spec in specs if targets.compared_contenders(spec.id)]
    if options.list:
        print(*(spec.id for spec in specs), sep="\n")
        return 0
    return benchmark(specs, options)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Benchmark ampscale against other implementations and a baseline.")
    parser.add_argument("--all", action="store_true", help="run all rows; by default, only those that have targets")
    parser.add_argument("--only", metavar="PATTERN", help="run the rows whose id contains this pattern; * and ? are wildcards")
    parser.add_argument(
        "--json", type=Path, help="file to write; a run without --only and --quick writes into benchmarks/results"
    )
    parser.add_argument("--quick", action="store_true", help="use small arrays and one call each, as a test; evaluate no targets")
    parser.add_argument("--list", action="store_true", help="print the ids of the rows")
    parser.add_argument(
        "--document", action="store_true", help="update the README and docs/performance.md from benchmarks/results"
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # used by the processes that this program starts
    return parser.parse_args()


def benchmark(specs: list[Spec], options: argparse.Namespace) -> int:
    """Run the rows, print and evaluate them, and write the file; return the exit status."""
    start = time.monotonic()
    load = machine.load()
    rows, versions, failures = run(specs, options.quick)
    verdicts = [] if options.quick else targets.evaluate(rows, targets.read_reasons())
    report = {
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start),
        "quick": options.quick,
        "all": options.all,
        "load": [load, machine.load()],  # before and after; the run itself adds 1
        "machine": machine.description(),
        "versions": versions,
        "failures": failures,
        "targets": verdicts,
        "rows": rows,
    }
    print(table.verdicts(verdicts), table.summary(report), sep="\n")
    if path := result_path(report, options):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, document.text_of(rounded(report)))
        print(f"written: {path}")
    faults = failures + targets.faults(verdicts)
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


def result_path(report: dict[str, Any], options: argparse.Namespace) -> Path | None:
    """Return the path of the file to write; None if there is none to write."""
    if options.json or options.quick or options.only:
        return options.json
    name = "cpu-" + machine.slug(machine.title(report["machine"]))
    return document.RESULTS / f"{name}-all.json" if options.all else document.RESULTS / f"{name}.json"


def run(specs: list[Spec], quick: bool) -> tuple[list[dict[str, Any]], dict[str, dict[str, str]], list[str]]:
    """
    Measure and print the rows of *specs*; return them, the package versions of each section, and the errors of failed sections.

    The sections run one after the other, or in a quick run two at a time. If a section fails, the others still run.
    """
    rows: list[dict[str, Any]] = []
    versions: dict[str, dict[str, str]] = {}
    failures: list[str] = []

    def measure(group: list[Spec]) -> None:
        try:
            for report in sections.read_reports(sections.start_worker(group, quick)):
                versions.update(report.get("versions", {}))
                if "row" in report:
                    rows.append(report["row"])
                    line = table.text_of(report["row"], judge=not quick)
                    print(f"{line}\n", end="", flush=True)  # a single write, since two threads may print
        except RuntimeError as failure:
            failures.append(f"{group[0].section}: {failure}")

    print(table.HEAD)
    with ThreadPoolExecutor(2 if quick else 1) as pool:
        list(pool.map(measure, sections.groups(specs, quick)))
    order = {spec.id: index for index, spec in enumerate(specs)}
    return sorted(rows, key=lambda row: order[row["id"]]), versions, failures


def rounded(value: Any) -> Any:
    """Return *value* with all floats rounded to six significant digits, which is more than any measurement has."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    sys.exit(main())
