"""MXNet: `LossScaler` of its automatic mixed precision; its check reads NumPy arrays."""

import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
from environments.published import extract
from subject import Subject, on_copies, pairs, read_attributes, settings

logging.disable()  # MXNet logs each change of the scale


class Flag:
    """Array of one element that the check writes and reads."""

    def __init__(self, shape: tuple[int, ...], ctx: object) -> None:
        self.array = np.ones(shape)

    def asnumpy(self) -> np.ndarray:
        """Return the array."""
        return self.array


def multi_all_finite(*gradients: np.ndarray, num_arrays: int, init_output: bool, out: Flag) -> None:
    """Clear the flag if a gradient is non-finite, as MXNet's operator does."""
    assert len(gradients) == num_arrays
    if init_output:
        out.array[:] = 1
    if not all(np.isfinite(gradient).all() for gradient in gradients):
        out.array[:] = 0


MXNET = extract(
    "mxnet",
    "mxnet/contrib/amp/loss_scaler.py",
    "LossScaler",
    ag=SimpleNamespace(pause=contextlib.nullcontext),
    logging=logging,
    multi_all_finite=multi_all_finite,
    nd=SimpleNamespace(ones=Flag),
)


class Gradient(np.ndarray):
    """Array with a context."""

    context = "cpu"


def fresh(init_scale: float = 2.0**16, growth_interval: int = 2000, max_scale: float = 2.0**24) -> Any:
    """Return a scaler whose constants are set as attributes, since its constructor has no parameters."""
    scaler = MXNET.LossScaler()
    scaler._loss_scale = scaler._next_loss_scale = init_scale
    scaler._scale_seq_len, scaler._max_loss_scale = growth_interval, max_scale
    return scaler


@on_copies
def step(scaler: Any, finite: bool) -> None:
    gradient = np.array([0.0, 0.0 if finite else np.inf]).view(Gradient)
    assert scaler.has_overflow([SimpleNamespace(_grad=[gradient])]) is not finite


SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (65536.0, 1), (2.0**23, 2), (2.0**-1072, 2)),
    {"init_scale": 1000.1, "growth_interval": 1, "max_scale": 3000.0},
)
HOW = "the class alone, extracted from its file; its constants are set as attributes, and its arrays are those of NumPy"
READ = read_attributes(scale="loss_scale", good_steps="_unskipped")

SUBJECTS = (Subject("mxnet", "mxnet", "contrib.amp LossScaler", fresh, step, READ, SETTINGS, how=HOW, unpacked=True),)
