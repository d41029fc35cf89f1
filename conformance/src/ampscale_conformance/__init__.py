"""
Conformance suite for loss scalers: test any implementation against the clauses of the specification.

Write an `Adapter`, and pass it to `check`, to `ampscale conform` or to pytest. An implementation in another language uses JSON
lines instead: see spec/conformance/protocol.md.
"""

from .adapters.ranks import on_ranks
from .model.adapter import CAPABILITIES, LEVELS, Adapter, ImplementationInfo, Unsupported
from .model.bits import leaves, map_tree
from .model.subject import TimedOut
from .model.verdicts import Report, Result, Verdict
from .run.check import check

__version__ = "0.1.0"

__all__ = [
    "CAPABILITIES",
    "LEVELS",
    "Adapter",
    "ImplementationInfo",
    "Report",
    "Result",
    "TimedOut",
    "Unsupported",
    "Verdict",
    "check",
    "leaves",
    "map_tree",
    "on_ranks",
]
