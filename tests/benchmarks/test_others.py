"""Tests that all contenders of a row compute the same results."""

import math
import os
import platform
import subprocess
import sys
from itertools import cycle, product

import numpy as np
import ours
import pytest
import sections
from gradients import SCALE, Gradients
from measure import Absent
from rows import functional as function_rows
from shapes import Shape

from ampscale.backends.cpu import fused

pytest.importorskip("torch")
SHAPE = Shape("some", "some", ((40, 50), (40, 50)))
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {"float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}


def expected(operation, dtype):
    """Return the arrays after the operation, and the norm before clipping, in float64."""
    gradients = Gradients(SHAPE, dtype, SCALE if operation in ours.UNSCALING else 1.0)
    arrays = [array.astype(np.float64) / gradients.scale for array in gradients.arrays]
    norm = math.sqrt(sum(float(np.sum(np.square(array))) for array in arrays))
    factor = min(1.0, gradients.max_norm / norm) if operation in (ours.CLIP, ours.ONLY_CLIP) else 1.0
    return [array * factor for array in arrays], norm


def float64_arrays(value):
    """Return all values in a result as float64 NumPy arrays."""
    if isinstance(value, list | tuple):
        return [array for part in value for array in float64_arrays(part)]
    if value is None:
        return []
    if type(value).__module__.startswith("torch"):
        value = value.detach().float().numpy()
    return [np.asarray(value).astype(np.float64)]


def run(section, operation, dtype, monkeypatch):
    """Run each contender except baselines, and yield its name, its result, and the contents of the gradients after the call."""
    created = []

    def recorded(*arguments):
        created.append(Gradients(*arguments))
        return created[-1]

    monkeypatch.setattr(function_rows, "Gradients", recorded)
    with np.errstate(all="ignore"):
        for contender in function_rows.contenders(section, operation, dtype, SHAPE, SCALE, quick=False):
            if isinstance(contender, Absent) or contender.kind == "baseline":
                continue
            if contender.reset is not None:
                contender.reset()
            returned = contender.run()
            yield contender.name, returned, [array.astype(np.float64) for array in created[0].arrays]


def close(actual, expected, dtype):
    """Return True if the arrays are equal to the precision of the dtype."""
    return all(
        left.shape == right.shape and np.allclose(left, right, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 1e-3)
        for left, right in zip(actual, expected, strict=True)
    )


@pytest.mark.parametrize("section", ["numpy", "torch", "two-threads"])
def test_contenders_unscale(section, monkeypatch):
    """Naive contenders return new arrays, and all others write in place. If the operation clips, all contenders clip."""
    for operation, dtype in product(ours.WRITING, DTYPES):
        arrays, _ = expected(operation, dtype)
        names = []
        for name, returned, contents in run(section, operation, dtype, monkeypatch):
            names.append(name)
            in_place = close(contents, arrays, dtype)
            assert in_place or close(float64_arrays(returned)[: len(arrays)], arrays, dtype), (name, operation, dtype)
            assert in_place or name == "naive", (name, operation, dtype)
        assert len(names) >= (2 if operation == ours.ONLY_CLIP else 3)


@pytest.mark.parametrize("section", ["numpy", "torch"])
def test_contenders_compute_the_norm(section, monkeypatch):
    """All contenders, at least three, return the same norm, except torch.amp, which has no function for it."""
    for operation, dtype in product([ours.NORM, ours.GLOBAL], DTYPES):
        norm = pytest.approx(expected(operation, dtype)[1], rel=TOLERANCE[dtype])
        returned = {name: float64_arrays(result) for name, result, _ in run(section, operation, dtype, monkeypatch)}
        correct = {name for name, values in returned.items() if any(value.shape == () and value == norm for value in values)}
        assert returned.keys() - correct <= {"torch.amp"}, (operation, dtype)
        assert len(correct) >= 3, (operation, dtype)


@pytest.mark.parametrize("section", ["numpy", "torch"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1.0])
def test_contenders_detect_non_finite_values(section, value, monkeypatch):
    """The result is True if all values are finite."""

    class Changed(Gradients):
        def refill(self):
            super().refill()
            self.arrays[1][3] = value

    monkeypatch.setattr(function_rows, "Gradients", Changed)
    for contender in function_rows.contenders(section, ours.FINITE, "float32", SHAPE, SCALE, quick=False):
        if contender.kind != "baseline":
            (finite,) = float64_arrays(contender.run())
            assert bool(finite) == math.isfinite(value), contender.name


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "dtype"), list(zip(ours.OPERATIONS, cycle(DTYPES), strict=False)))
def test_jax_contenders_compute_the_same_results(operation, dtype, monkeypatch):
    """
    The results are the arrays, the norm, and the finite flag, which is 1.0 in float64.

    The contenders are ampscale (eager and jitted), jax.numpy, and if they are installed, jmp and flax.
    """
    pytest.importorskip("jax")
    arrays, norm = expected(operation, dtype)
    names = []
    for name, returned, _ in run("jax", operation, dtype, monkeypatch):
        names.append(name)
        values = float64_arrays(returned)
        if operation in ours.WRITING:
            assert close(values[: len(arrays)], arrays, dtype), name
        scalars = [float(number) for number in values if number.shape == ()]
        if operation in (ours.NORM, ours.CLIP, ours.GLOBAL):
            assert any(number == pytest.approx(norm, rel=TOLERANCE[dtype]) for number in scalars), name
        if operation != ours.GLOBAL:
            assert 1.0 in scalars, name
    assert {"ampscale", "ampscale, jitted", "jax.numpy"} <= set(names)


def test_a_function_row_without_numba_uses_no_kernels():
    """After the call, the kernels are used again."""
    before = fused.kernel_choice_host
    assert function_rows.without_numba(lambda: fused.kernel_choice_host().module)() is None
    assert fused.kernel_choice_host is before


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
def test_avx2_kernels_use_no_wider_vectors(tmp_path):
    """The machine code uses registers of 256 bits (ymm) and none of 512 (zmm)."""
    pytest.importorskip("numba")
    code = """
import numpy as np, ampscale
from ampscale.backends.cpu.kernels import run_spans
tree = [np.ones(1000, np.float32)]
ampscale.unscale_and_check(tree, 49.0, out=tree)
(assembly,) = run_spans.inspect_asm().values()
print("ymm" in assembly, "zmm" in assembly)
"""
    environment = {**os.environ, **sections.AVX2, "NUMBA_CACHE_DIR": str(tmp_path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "True False\n"
