"""Pictures of the exponents of each gradient over the steps, with the range of float16."""

import base64
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from ...diagnostics.float16 import LARGEST_EXPONENT, SMALLEST_NORMAL, SMALLEST_SUBNORMAL
from ...diagnostics.run_files import Run
from ...diagnostics.run_lines import Measurement
from .layers import Layer, shift_of
from .markup import escaped, frame, power_of_two, step_ticks

MOST = 200  # maximum number of pictures of single gradients
_COLUMNS = 240  # maximum number of columns of a picture
_LOW, _HIGH = -48, 31  # limits of the exponents of the first and the last row
_COLOR = 43, 123, 208
_LEVELS = 16


def heat_maps(run: Run, layers: list[Layer], measurements: list[Measurement]) -> tuple[list[str], list[str]]:
    """Return names and pictures: of all gradients together, and of the first `MOST` gradients by `Layer.sort_key`."""
    if not any(measurement.histograms for measurement in measurements):
        return [], []
    worst_first = sorted(range(len(layers)), key=lambda index: layers[index].sort_key())
    chosen = sorted(worst_first[:MOST])
    names = ["all gradients", *(layers[index].name for index in chosen)]
    shares, low = _shares(run, measurements, chosen)
    return names, [_picture(run, name, picture, low) for name, picture in zip(names, shares, strict=True)]


def _shares(run: Run, measurements: list[Measurement], chosen: list[int]) -> tuple[np.ndarray, int]:
    """
    Return shares of values as float32, shape (gradients, columns, rows), and the exponent of the first row.

    The gradients are all together, and each *chosen* one. A column without a measurement equals the previous column.
    """
    bins = list(_bins(run, measurements))
    all_exponents = np.concatenate([exponents for _, _, exponents, _ in bins])
    low = max(_LOW, int(all_exponents.min(initial=SMALLEST_SUBNORMAL - 4)))
    high = min(_HIGH, int(all_exponents.max(initial=LARGEST_EXPONENT + 3)))
    columns = min(_COLUMNS, run.steps.size, max(24, 2 * len(bins)))
    rows = high - low + 1
    slots = np.zeros(max(chosen, default=0) + 2, np.int64)  # index of each gradient in the result; 0 if it is not chosen
    slots[chosen] = np.arange(1, len(chosen) + 1)
    counts = np.zeros((len(chosen) + 1, columns, rows), np.float32)
    source_columns = np.zeros(columns, np.int64)
    for position, gradients, exponents, weights in bins:
        column = position * columns // run.steps.size
        source_columns[column] = column
        row = np.clip(exponents - low, 0, rows - 1)
        slot = slots[np.minimum(gradients, slots.size - 1)]  # of a gradient after the last chosen one: 0
        counts[1:, column] += np.bincount(slot * rows + row, weights, counts.shape[0] * rows).reshape(-1, rows)[1:]
        counts[0, column] += np.bincount(row, weights, rows)
    totals = np.maximum(counts.sum(axis=2, keepdims=True), 1)
    return (counts / totals)[:, np.maximum.accumulate(source_columns)], low


def _bins(run: Run, measurements: list[Measurement]) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the index of each step with histograms, and the gradient, exponent and count of each bin, as scaled in the step."""
    for measurement in measurements:
        if measurement.histograms is not None:
            gradients, exponents = measurement.histograms.bins()
            yield measurement.position, gradients, exponents + shift_of(run, measurement), measurement.histograms.counts


def _picture(run: Run, name: str, shares: np.ndarray, low: int) -> str:
    rows = shares.shape[1]
    top = low + rows
    heights = {exponent: 100 * (top - exponent) / rows for exponent in range(low, top + 1)}
    overflow, subnormal, lost = (heights[limit] for limit in (LARGEST_EXPONENT + 1, SMALLEST_NORMAL, SMALLEST_SUBNORMAL))
    limits = (
        (overflow, "above 65504: overflow", "-0.4em"),
        (subnormal, f"below {power_of_two(SMALLEST_NORMAL)}: fewer digits", "1.1em"),
        (lost, f"below {power_of_two(SMALLEST_SUBNORMAL)}: lost or rounded up", "1.1em"),
    )
    lines = "".join(
        f'<line class="limit" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>'
        f'<text class="limit" x="100%" dx="-6" y="{y:.2f}%" dy="{dy}">{text}</text>'
        for y, text, dy in limits
    )
    largest = float(shares.max())
    levels = np.ceil((_LEVELS - 1) * np.sqrt(shares / largest)) if largest else shares
    image = base64.b64encode(_png(levels.T[::-1].astype(np.uint8))).decode()
    content = (
        f'<rect class="overflow" width="100%" height="{overflow:.2f}%"/>'
        f'<rect class="lost" width="100%" y="{lost:.2f}%" height="{100 - lost:.2f}%"/>'
        f'<image width="100%" height="100%" preserveAspectRatio="none" href="data:image/png;base64,{image}"/>{lines}'
    )
    ticks = [(height, power_of_two(exponent)) for exponent, height in heights.items() if exponent % 8 == 0]
    label = f"Exponents of the scaled values of {name} over the steps, and the range of float16"
    plot = frame("heat", label, content, ticks, step_ticks(run.steps))
    return f'<figure class="layer"><figcaption>{escaped(name)}</figcaption>{plot}</figure>'


def _png(levels: np.ndarray) -> bytes:
    """Return an image whose pixels have one color and the opacities *levels*, from 0 to 15: uint8, shape (rows, columns)."""
    rows, columns = levels.shape
    padded = np.pad(levels, ((0, 0), (0, columns % 2)))
    lines = np.pad(padded[:, ::2] << 4 | padded[:, 1::2], ((0, 0), (1, 0)))  # each line starts with the number of its filter, 0
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 4, 3, 0, 0, 0)),  # 4 bits for each pixel: its color in the palette
        (b"PLTE", bytes(_COLOR) * _LEVELS),
        (b"tRNS", bytes(round(255 * level / (_LEVELS - 1)) for level in range(_LEVELS))),
        (b"IDAT", zlib.compress(lines.tobytes())),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
