"""
Conversion of loss-scaler states between the checkpoint formats of the published frameworks.

`load` reads a format into a `LossScaleRule` and a `LossScaleState`; `save` writes them as the entries of another format. The
report of `save` lists the constants and counts that the target cannot hold, and states when the two scales can differ.

>>> saved = convert({"fin_steps": 4, "scale": 1024.0}, source="flax", target="torch")
>>> saved.mapping["scale"], saved.mapping["_growth_tracker"], saved.mapping["growth_interval"]
(1024.0, 4, 2001)
>>> saved.report.lossless, saved.report.dropped["skip_infinite_growth"]
(False, (False, True))
"""

from .convert import ConversionReport, Saved, convert, load, save
from .divergence import Divergence
from .files.read_write import read_file, write_file
from .formats.published import FORMATS
from .state import Checkpoint
from .trace_graph import Run, RunLengths

__all__ = [
    "FORMATS",
    "Checkpoint",
    "ConversionReport",
    "Divergence",
    "Run",
    "RunLengths",
    "Saved",
    "convert",
    "load",
    "read_file",
    "save",
    "write_file",
]
