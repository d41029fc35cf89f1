"""
Everything against everyone: one table and one JSON file.

    python benchmarks/bench.py [--json PATH] [--only PATTERN] [--quick] [--list] [--document]

Each row measures ampscale, its rivals and the floor of this machine in turn in one process, and is a ratio of medians with its
spread. What the rows mean, and where their time goes, is in docs/performance.md.
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
from specs import Spec, chosen

from ampscale.files import write_atomically

RESULTS = sections.ROOT / "benchmarks" / "results"
VERSION = 1  # of the file's form


def main() -> int:
    """Runs what was asked for. 1 where a target is missed without a reason, or a section fails."""
    options = parsed()
    if options.work:
        sections.work(json.load(sys.stdin), options.quick, sys.stdout)
        return 0
    if options.document:
        document.bring_up_to_date()
        return 0
    specs = chosen(sections.all_specs(), options.only)
    if options.list:
        print(*(spec.id for spec in specs), sep="\n")
        return 0
    return measured(specs, options)


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="What the verbs cost, against every rival and this machine's floor.")
    parser.add_argument("--json", type=Path, help="where to write the file; a whole run writes it into benchmarks/results")
    parser.add_argument("--only", metavar="PATTERN", help="rows whose id has this in it; * and ? stand for others")
    parser.add_argument(
        "--quick", action="store_true", help="small arrays and few repetitions: to see that it runs; judges nothing"
    )
    parser.add_argument("--list", action="store_true", help="the rows' ids")
    parser.add_argument("--document", action="store_true", help="bring docs/performance.md up to date with benchmarks/results")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # one of this program's own processes
    return parser.parse_args()


def measured(specs: list[Spec], options: argparse.Namespace) -> int:
    """The run: rows as they come, then the targets, then the file."""
    start = time.monotonic()
    rows, versions, failures = run(specs, options.quick)
    verdicts = [] if options.quick else targets.judged(rows, targets.read_reasons())
    report = {
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start),
        "quick": options.quick,
        "machine": machine.described(),
        "versions": versions,
        "failures": failures,
        "targets": verdicts,
        "rows": rows,
    }
    print(table.verdicts(verdicts), table.summary(report), sep="\n")
    path = options.json or (
        None if options.quick or options.only else RESULTS / f"cpu-{machine.slug(report['machine']['cpu'])}.json"
    )
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, document.text_of(rounded(report)))
        print(f"written: {path}")
    faults = failures + targets.faults(verdicts)
    print(*faults, sep="\n", file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


def run(specs: list[Spec], quick: bool) -> tuple[list[dict[str, Any]], dict[str, dict[str, str]], list[str]]:
    """
    The rows, the versions by section, and which sections failed.

    Processes run one after the other, in a quick run side by side; when one fails, the others still run.
    """
    rows: list[dict[str, Any]] = []
    versions: dict[str, dict[str, str]] = {}
    failures: list[str] = []

    def measure(group: list[Spec]) -> None:
        try:
            for report in sections.reports(sections.started(group, quick)):
                versions.update(report.get("versions", {}))
                if "row" in report:
                    rows.append(report["row"])
                    print(table.row(report["row"], judge=not quick) + "\n", end="", flush=True)  # in one piece
        except RuntimeError as failure:
            failures.append(f"{group[0].section}: {failure}")

    print(table.HEAD)
    with ThreadPoolExecutor(2 if quick else 1) as pool:
        list(pool.map(measure, sections.groups(specs, quick)))
    order = {spec.id: index for index, spec in enumerate(specs)}
    return sorted(rows, key=lambda row: order[row["id"]]), versions, failures


def rounded(value: Any) -> Any:
    """Numbers with six digits: more have never been measured."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    sys.exit(main())
