"""Simulation of rules along overflow traces, their comparison, and their identification from observed scales."""

from .compare import Comparison, compare
from .identification.identify import Explanation, identify
from .recordings.files import from_file
from .recordings.logs import Log, read_log
from .recordings.tables import from_csv, observed_from_csv
from .simulate import Trajectory, simulate
from .sweep import sweep
from .traces import Observed, Trace, from_flags, from_model, from_string

__all__ = [
    "Comparison",
    "Explanation",
    "Log",
    "Observed",
    "Trace",
    "Trajectory",
    "compare",
    "from_csv",
    "from_file",
    "from_flags",
    "from_model",
    "from_string",
    "identify",
    "observed_from_csv",
    "read_log",
    "simulate",
    "sweep",
]
