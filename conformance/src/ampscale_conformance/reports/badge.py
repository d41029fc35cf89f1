"""Counts of a report for a badge."""

import json

from ..model.verdicts import Report
from ..model.versions import SUITE


def json_of(report: Report) -> str:
    """
    Return the report as JSON in the schema of the endpoint badge of shields.io.

    The message contains the number of passed cases and the number of cases that were run, which includes expected failures.

    >>> from ..model.adapter import ImplementationInfo
    >>> print(json_of(Report(ImplementationInfo(name="mine"))))
    {"schemaVersion": 1, "label": "loss scaling 1.0", "message": "0 of 0", "color": "red"}
    """
    counts = report.counts
    run = sum(counts.values()) - counts.get("unsupported", 0)
    color = "yellow" if counts.get("xfail") else "brightgreen"
    if not report.ok:
        color = "red"
    message = f"{counts.get('pass', 0)} of {run}"
    return json.dumps({"schemaVersion": 1, "label": f"loss scaling {SUITE}", "message": message, "color": color})
