"""
Gradients for the measurements: views of one block of memory, which is refilled before each call that changes it.

The values are normal random numbers times the scale. Their standard deviation changes every thousand values, so that the values
have many magnitudes. The block repeats about a million values, so that a refill needs no copy of the whole block. The arrays are
aligned to 64 bytes like torch's own, and all contenders use the same arrays.

Hardly any unscaled value is subnormal. Some processors, and NumPy's float16, are many times slower for subnormal values, and the
rows should not depend on the number of these values.
"""

import math
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np
from shapes import Shape

PERIOD = 1_048_573  # prime, so that arrays of round sizes differ
ALIGNMENT = 64  # bytes
SCALE = 2.0**16
# Smallest and largest standard deviation of the unscaled gradients, which are normal in the dtype, and finite after scaling.
DEVIATIONS, DEVIATIONS_FLOAT16 = (1e-6, 1e-2), (3e-3, 0.15)


class Gradients:
    """
    Scaled gradients of a model.

    Args:
        shape: Shapes of the arrays.
        dtype: Name of a floating-point dtype, or "complex64"; "bfloat16" is from ml_dtypes.
        scale: Factor that the gradients were multiplied by.
    """

    def __init__(self, shape: Shape, dtype: str, scale: float = SCALE) -> None:
        self.shape, self.scale = shape, scale
        self.dtype = numpy_dtype(dtype)
        self._pool = _pool(dtype, scale)
        unit = ALIGNMENT // self.dtype.itemsize
        padded_sizes = (math.ceil(math.prod(dimensions) / unit) * unit for dimensions in shape.arrays)
        *starts, end = accumulate(padded_sizes, initial=0)
        self._memory = _aligned(end, self.dtype)
        self.max_norm = _root_mean_square(dtype, scale) / scale * math.sqrt(shape.values) / 2  # about half the norm
        self.arrays = [
            self._memory[start : start + math.prod(dimensions)].reshape(dimensions)
            for start, dimensions in zip(starts, shape.arrays, strict=True)
        ]
        self.refill()

    def refill(self) -> None:
        """Restore the scaled gradients."""
        whole = self._memory.size // PERIOD * PERIOD
        self._memory[:whole].reshape(-1, PERIOD)[...] = self._pool
        self._memory[whole:] = self._pool[: self._memory.size - whole]

    def flat(self) -> list[np.ndarray]:
        """Return the arrays with one dimension; 16-bit arrays are viewed as float32, since NumPy processes that faster."""
        dtype = np.float32 if self.dtype.itemsize == 2 else self.dtype
        return [array.reshape(-1).view(dtype) for array in self.arrays]

    def as_torch(self) -> list[Any]:
        """Return torch tensors that share the memory of the arrays."""
        import torch

        if self.dtype.name != "bfloat16":
            return [torch.from_numpy(array) for array in self.arrays]
        return [torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) for array in self.arrays]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype called *name*; bfloat16 is from ml_dtypes."""
    return np.dtype(import_module("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def _aligned(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an uninitialized array whose address is a multiple of `ALIGNMENT`."""
    memory = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size * dtype.itemsize].view(dtype)


@cache
def _pool(dtype: str, scale: float) -> np.ndarray:
    """Return the `PERIOD` scaled gradients that the block repeats."""
    random = np.random.default_rng(0)
    blocks = -(-PERIOD // 1000)
    limits = DEVIATIONS_FLOAT16 if dtype == "float16" else DEVIATIONS
    deviations = np.repeat(np.exp(random.uniform(*np.log(limits), blocks)), 1000)[:PERIOD]
    values = (random.standard_normal(PERIOD) * deviations * scale).astype(np.float32)
    return (values + 1j * values[::-1] if dtype == "complex64" else values).astype(numpy_dtype(dtype))


@cache
def _root_mean_square(dtype: str, scale: float) -> float:
    return float(np.sqrt(np.mean(np.square(np.abs(_pool(dtype, scale)).astype(np.float64)))))


def baselines(gradients: Gradients, writes: bool) -> dict[str, Any]:
    """Return the baselines by name: an in-place multiply of the same bytes, or two reductions that read them."""
    arrays = gradients.flat()
    one = np.asarray(1, arrays[0].dtype)  # of shape (), which is twice as fast in NumPy as a scalar

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
