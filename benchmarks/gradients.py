"""
Gradients to measure on: one piece of memory, cut into arrays, which is filled anew before each call that changes it.

Normal draws times the scale, whose deviation changes every thousand numbers: no constants, and so no branch, table or rounding
that sees only one value. What is filled in is a million of them over and over, so that no second copy of the memory is needed.
The arrays begin on multiples of 64 bytes, as torch's own do, and all contenders see the same ones.

Unscaled, hardly any is subnormal: some processors and NumPy's float16 take many times as long for these, and the rows are to
compare the work, not the luck of the data.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from shapes import Shape

PERIOD = 1_048_573  # prime, so that arrays of round sizes differ
ALIGNMENT = 64  # bytes
SCALE = 2.0**16
# Of the unscaled gradients, from and to: what is normal in the dtype, and finite when scaled by 2**16.
DEVIATIONS = {"float32": (1e-6, 1e-2), "bfloat16": (1e-6, 1e-2), "float16": (3e-3, 0.15)}


class Gradients:
    """
    The scaled gradients of a model.

    Args:
        shape: Which arrays.
        dtype: "float32", "float16" or "bfloat16"; NumPy has the last one through ml_dtypes.
        scale: What they were multiplied by.
    """

    def __init__(self, shape: Shape, dtype: str, scale: float = SCALE) -> None:
        self.shape, self.scale = shape, scale
        self.dtype = named(dtype)
        self._pool = _pool(dtype, scale)
        unit = ALIGNMENT // self.dtype.itemsize
        starts, end = [], 0
        for dimensions in shape.arrays:
            starts.append(end)
            end += -(-math.prod(dimensions) // unit) * unit
        self._memory = _aligned(end, self.dtype)
        self.max_norm = _root_mean_square(dtype, scale) / scale * math.sqrt(shape.values) / 2  # so that clipping has to clip
        self.arrays = [
            self._memory[start : start + math.prod(one)].reshape(one) for start, one in zip(starts, shape.arrays, strict=True)
        ]
        self.bytes = sum(array.nbytes for array in self.arrays)
        self.refill()

    def refill(self) -> None:
        """Puts the scaled gradients back."""
        whole = self._memory.size // PERIOD * PERIOD
        self._memory[:whole].reshape(-1, PERIOD)[...] = self._pool
        self._memory[whole:] = self._pool[: self._memory.size - whole]

    def as_float32(self) -> list[np.ndarray]:
        """The same bytes as float32, in one axis: what NumPy is quickest at."""
        return [array.reshape(-1).view(np.float32) for array in self.arrays]

    def as_torch(self) -> list[Any]:
        """The same memory as torch's tensors."""
        import torch

        if self.dtype.name != "bfloat16":
            return [torch.from_numpy(array) for array in self.arrays]
        return [torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) for array in self.arrays]


def named(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of this name."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def _aligned(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    memory = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size * dtype.itemsize].view(dtype)


@cache
def _pool(dtype: str, scale: float) -> np.ndarray:
    draw = np.random.default_rng(0)
    blocks = -(-PERIOD // 1000)
    deviations = np.repeat(np.exp(draw.uniform(*np.log(DEVIATIONS[dtype]), blocks)), 1000)[:PERIOD]
    values = draw.standard_normal(PERIOD) * deviations * scale
    return values.astype(np.float32).astype(named(dtype))


@cache
def _root_mean_square(dtype: str, scale: float) -> float:
    return float(np.sqrt(np.mean(np.square(_pool(dtype, scale).astype(np.float64)))))


def floors(gradients: Gradients, writes: bool) -> dict[str, Any]:
    """What the memory allows, by name: to multiply the same bytes in place; or to read them, by the faster of two reductions."""
    arrays = gradients.as_float32()
    one = np.asarray(1, np.float32)  # of shape (): NumPy takes it twice as quickly as a scalar

    def multiply() -> None:
        for array in arrays:
            np.multiply(array, one, array)

    def largest() -> None:
        for array in arrays:
            array.max()

    def dot() -> None:
        for array in arrays:
            np.dot(array, array)

    return {"multiply": multiply} if writes else {"max": largest, "dot": dot}
