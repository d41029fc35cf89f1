"""
Scaler state, to and from every framework's own: what a checkpoint of one library says, another one can go on from.

All go through the one machine of `ampscale.core`: a format says how its entries stand for a rule and a state. What the target
cannot hold is reported, together with how far the two runs can part because of it.

    saved = checkpoints.convert(torch_scaler.state_dict(), "torch", "paddle")
    paddle_scaler.load_state_dict(saved.mapping)
    saved.report.lossless, saved.report.dropped, saved.report.divergence
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
