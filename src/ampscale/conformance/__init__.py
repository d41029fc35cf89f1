"""
The conformance suite: anyone can test their loss scaler, and see which clause of the specification it breaks.

Write an `Adapter`, and hand it to `check`, to `ampscale conform`, or to pytest. An implementation in another language speaks JSON
lines instead: spec/conformance/protocol.md.
"""

from .adapter import CAPABILITIES, LEVELS, Adapter, ImplementationInfo, Unsupported
from .bits import leaves, map_tree
from .check import check
from .verdicts import Report, Result, Verdict

__all__ = [
    "CAPABILITIES",
    "LEVELS",
    "Adapter",
    "ImplementationInfo",
    "Report",
    "Result",
    "Unsupported",
    "Verdict",
    "check",
    "leaves",
    "map_tree",
]
