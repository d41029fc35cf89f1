"""
Checks one adapter where there is no click: `python -m ampscale.conformance pkg.mod:NAME [--level N] [--seconds S]`.

The report is printed as JSON, with a snippet for each failure, and nothing else. The exit status is 0 where nothing failed, 1
where something did, and 2 where there is no such adapter.
"""

import argparse
import os
import sys
from dataclasses import replace

from . import LEVELS
from .check import SECONDS, check
from .find import NotFound, find
from .snippet import snippet_of


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m ampscale.conformance", description="Checks one adapter; prints JSON.")
    parser.add_argument("adapter", help="pkg.mod:NAME, or the name of one that is installed")
    parser.add_argument("--level", type=int, choices=sorted(LEVELS), help="leave out the cases above this level")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a case may take")
    asked = parser.parse_args()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as ours:
        os.dup2(2, 1)  # what an implementation prints goes to the standard error
        try:
            adapter = find(asked.adapter)
        except NotFound as error:
            parser.error(str(error))
        report = check(adapter, asked.level, seconds=asked.seconds)
        results = tuple(replace(result, snippet=snippet_of(result, adapter)) for result in report.results)
        ours.write(replace(report, results=results).to_json() + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
