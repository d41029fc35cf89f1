"""Pictures of the exponents of each gradient over the steps, with the range of float16."""

import base64
import struct
import zlib
from typing import NamedTuple

import numpy as np

from ...diagnostics.run_files import Run
from ...diagnostics.run_lines import Measurement
from ...diagnostics.window import LARGEST_EXPONENT, SMALLEST_NORMAL, SMALLEST_SUBNORMAL
from .layers import Layer, complete, shift_of
from .markup import escaped, frame, power_of_two, step_ticks

MOST = 200  # pictures
_COLUMNS = 240  # at most, in a picture
_LOW, _HIGH = -48, 31  # exponents of the first and the last row at most
_COLOUR = 43, 123, 208
_LEVELS = 16


class Shares(NamedTuple):
    """
    Shares of the values of some gradients by column and exponent.

    Args:
        values: float32, shape (gradients, columns, rows). A column without measurement has the shares of the one before.
        low: Exponent of the first row.
    """

    values: np.ndarray
    low: int


def heat_maps(run: Run, layers: list[Layer]) -> tuple[list[str], list[str]]:
    """Return the names and the pictures: of all gradients together, and of those that lose the largest shares."""
    measurements = [measurement for measurement in complete(run, run.measurements) if measurement.histograms is not None]
    if not measurements:
        return [], []
    order = sorted(range(len(layers)), key=lambda index: layers[index].order())[:MOST]
    chosen = sorted(order)
    shares = _shares(run, measurements, chosen)
    names = ["all gradients", *(layers[index].name for index in chosen)]
    return names, [_picture(run, name, values, shares.low) for name, values in zip(names, shares.values, strict=True)]


def _shares(run: Run, measurements: list[Measurement], chosen: list[int]) -> Shares:
    """Return the shares of all gradients together, and of the *chosen* ones."""
    bins = [measurement.histograms.bins() for measurement in measurements if measurement.histograms is not None]
    shifts = [shift_of(run, measurement) for measurement in measurements]
    ends = [
        (exponents.min() + shift, exponents.max() + shift)
        for (_, exponents), shift in zip(bins, shifts, strict=True)
        if exponents.size
    ]
    low = max(_LOW, min([SMALLEST_SUBNORMAL - 4, *(int(first) for first, _ in ends)]))
    high = min(_HIGH, max([LARGEST_EXPONENT + 3, *(int(last) for _, last in ends)]))
    columns, rows = min(_COLUMNS, run.steps.size, max(24, 2 * len(measurements))), high - low + 1
    slots = np.zeros(max(chosen, default=0) + 2, np.int64)  # index of each gradient in the result; 0 for all together
    slots[chosen] = np.arange(1, len(chosen) + 1)
    counts = np.zeros((len(chosen) + 1, columns, rows), np.float32)
    for measurement, (gradients, exponents), shift in zip(measurements, bins, shifts, strict=True):
        column = measurement.position * columns // run.steps.size
        weights = measurement.histograms.counts if measurement.histograms is not None else None
        row = np.clip(exponents + shift - low, 0, rows - 1)
        slot = slots[np.minimum(gradients, slots.size - 1)]
        cells = np.bincount(slot * rows + row, weights, counts.shape[0] * rows).reshape(-1, rows)
        counts[1:, column] += cells[1:]
        counts[0, column] += np.bincount(row, weights, rows)
    totals = counts.sum(axis=2, keepdims=True)
    measured = np.zeros(columns, np.int64)
    used = np.unique([measurement.position * columns // run.steps.size for measurement in measurements])
    measured[used] = used
    return Shares((counts / np.maximum(totals, 1))[:, np.maximum.accumulate(measured)], low)


def _picture(run: Run, name: str, values: np.ndarray, low: int) -> str:
    rows = values.shape[1]
    top = low + rows

    def height(exponent: int) -> float:
        return float(100 * (top - exponent) / rows)

    most = float(values.max())
    levels = np.ceil((_LEVELS - 1) * np.sqrt(values / most)) if most else values
    image = base64.b64encode(_png(levels.T[::-1].astype(np.uint8))).decode()
    lines = "".join(
        f'<line class="limit" x1="0" x2="100%" y1="{height(exponent):.2f}%" y2="{height(exponent):.2f}%"/>'
        f'<text class="limit" x="100%" dx="-6" y="{height(exponent):.2f}%" dy="{dy}">{text}</text>'
        for exponent, text, dy in (
            (LARGEST_EXPONENT + 1, "above 65504: overflow", "-0.4em"),
            (SMALLEST_NORMAL, f"below {power_of_two(SMALLEST_NORMAL)}: fewer digits", "1.1em"),
            (SMALLEST_SUBNORMAL, f"below {power_of_two(SMALLEST_SUBNORMAL)}: lost or rounded up", "1.1em"),
        )
    )
    lost = height(SMALLEST_SUBNORMAL)
    zones = (
        f'<rect class="overflow" width="100%" height="{height(LARGEST_EXPONENT + 1):.2f}%"/>'
        f'<rect class="lost" width="100%" y="{lost:.2f}%" height="{100 - lost:.2f}%"/>'
    )
    content = f'{zones}<image width="100%" height="100%" preserveAspectRatio="none" href="data:image/png;base64,{image}"/>{lines}'
    ticks = [(height(exponent), power_of_two(exponent)) for exponent in range(low, top + 1) if exponent % 8 == 0]
    label = f"Exponents of the scaled values of {name} over the steps, and the range of float16"
    plot = frame("heat", label, content, ticks, step_ticks(run.steps))
    return f'<figure class="layer"><figcaption>{escaped(name)}</figcaption>{plot}</figure>'


def _png(levels: np.ndarray) -> bytes:
    """Return an image whose pixels have one colour and the opacities *levels*, from 0 to 15: uint8, shape (rows, columns)."""
    rows, columns = levels.shape
    padded = np.pad(levels, ((0, 0), (0, columns % 2)))
    packed = padded[:, ::2] << 4 | padded[:, 1::2]
    lines = np.pad(packed, ((0, 0), (1, 0)))  # each line starts with the number of its filter, 0
    opacities = bytes(round(255 * level / (_LEVELS - 1)) for level in range(_LEVELS))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 4, 3, 0, 0, 0)),
        (b"PLTE", bytes(_COLOUR) * _LEVELS),
        (b"tRNS", opacities),
        (b"IDAT", zlib.compress(lines.tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
