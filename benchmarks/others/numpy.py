"""NumPy implementations: naive code, and careful code that avoids allocations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from ours import CLIP, FINITE, GLOBAL, NORM, UNSCALE

Arrays = list[np.ndarray]


def naive(operation: str, arrays: Arrays, scale: float, max_norm: float) -> Callable[[], object]:
    """
    Return code that allocates an array for each result.

    The scale is a float32 scalar, since 2**16 overflows in float16. It widens 16-bit gradients to float32; results are cast back.
    """
    number = np.float32(scale)

    def unscaled() -> Arrays:
        return [(array / number).astype(array.dtype, copy=False) for array in arrays]

    def checked() -> tuple[Arrays, bool]:
        gradients = unscaled()
        return gradients, finite(gradients)

    def normed() -> tuple[Arrays, bool, float]:
        gradients, flag = checked()
        return gradients, flag, norm(gradients)

    def clipped() -> tuple[Arrays, bool, float]:
        gradients, flag, total_norm = normed()
        factor = np.float32(min(1.0, max_norm / (total_norm + 1e-6)))
        return [(array * factor).astype(array.dtype, copy=False) for array in gradients], flag, total_norm

    def finite(values: Arrays) -> bool:
        return all(np.isfinite(array).all() for array in values)

    def norm(values: Arrays) -> float:
        return math.sqrt(sum(float(np.sum(array.astype(np.float32) ** 2)) for array in values))

    calls = {UNSCALE: checked, NORM: normed, CLIP: clipped, FINITE: lambda: finite(arrays), GLOBAL: lambda: norm(arrays)}
    return calls[operation]


def careful(operation: str, arrays: Arrays, scale: float, max_norm: float) -> Callable[[], object]:
    """Return code that works in place with preallocated masks; BLAS computes the norms, in float32."""
    number = np.asarray(scale, np.float32)
    largest = max(array.size for array in arrays)
    mask = np.empty(largest, np.bool_)
    buffer = None if arrays[0].dtype == np.float32 else np.empty(largest, np.float32)
    flat = [array.reshape(-1) for array in arrays]

    def apply(function: Any, factor: np.ndarray) -> None:
        for array in flat:
            function(array, factor, out=array, dtype=np.float32, casting="unsafe")

    def finite() -> bool:
        return all([np.isfinite(array, out=mask[: array.size]).all() for array in flat])  # noqa: C419 - a generator would stop at the first False

    def norm() -> float:
        return math.sqrt(sum(float(np.dot(array, array)) for array in map(widened, flat)))

    def widened(array: np.ndarray) -> np.ndarray:
        if buffer is None:
            return array
        buffer[: array.size] = array
        return buffer[: array.size]

    def run() -> tuple[bool, float | None]:
        apply(np.divide, number)
        flag = finite()
        total_norm = None if operation == UNSCALE else norm()
        if operation == CLIP:
            apply(np.multiply, np.asarray(min(1.0, max_norm / (total_norm + 1e-6)), np.float32))
        return flag, total_norm

    return {FINITE: finite, GLOBAL: norm}.get(operation, run)
