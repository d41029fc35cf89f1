"""
Diagnosis of loss scaling: what the gradients were like, why steps were skipped, and which scale would have helped.

A `Monitor` receives the steps of a training loop. docs/diagnosis.md shows it in use.
"""

from .history import Limits
from .monitor import Monitor, StalledError
from .records import Histogram, StepRecord, TensorStatistics
from .run_files import read_run
from .sinks import JSONLines, Logging, Sink, TensorBoard, WeightsAndBiases
from .suggest import Replay, Suggestion, calibrate, limits, replay, suggest
from .verdicts import Diagnoser, Diagnosis, Verdict

__all__ = [
    "Diagnoser",
    "Diagnosis",
    "Histogram",
    "JSONLines",
    "Limits",
    "Logging",
    "Monitor",
    "Replay",
    "Sink",
    "StalledError",
    "StepRecord",
    "Suggestion",
    "TensorBoard",
    "TensorStatistics",
    "Verdict",
    "WeightsAndBiases",
    "calibrate",
    "limits",
    "read_run",
    "replay",
    "suggest",
]
