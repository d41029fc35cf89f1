"""
The conformance suite: anyone can test their loss scaler, and see which clause of the specification it breaks.

Write an `Adapter`, and hand it to `check`, to `ampscale conform`, or to pytest. An implementation in another language speaks JSON
lines instead: spec/conformance/protocol.md.
"""

from .model.adapter import CAPABILITIES, LEVELS, Adapter, ImplementationInfo, Unsupported
from .model.bits import leaves, map_tree
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
    "Unsupported",
    "Verdict",
    "check",
    "leaves",
    "map_tree",
]
