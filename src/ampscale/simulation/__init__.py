"""
Simulation and comparison of rules along overflow traces, and identification of rules from observed scales.

The package also models the time that many ranks need to agree on an overflow, and the drift of ranks that decide alone.
"""

from .compare import Comparison, compare
from .identification.identify import Explanation, identify
from .ranks import (
    AgreementCost,
    Drift,
    RankModel,
    agreement_cost,
    disagreement_probability,
    simulate_drift,
    steps_until_disagreement,
)
from .recordings.files import from_file
from .recordings.logs import Log, read_log
from .recordings.tables import from_csv, observed_from_csv
from .simulate import Trajectory, simulate
from .sweep import sweep
from .traces import Observed, Trace, from_flags, from_model, from_string

__all__ = [
    "AgreementCost",
    "Comparison",
    "Drift",
    "Explanation",
    "Log",
    "Observed",
    "RankModel",
    "Trace",
    "Trajectory",
    "agreement_cost",
    "compare",
    "disagreement_probability",
    "from_csv",
    "from_file",
    "from_flags",
    "from_model",
    "from_string",
    "identify",
    "observed_from_csv",
    "read_log",
    "simulate",
    "simulate_drift",
    "steps_until_disagreement",
    "sweep",
]
