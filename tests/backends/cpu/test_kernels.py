"""Compiled kernels and NumPy blocks against the definitions of the core, for all 16-bit patterns; and the choice of kernels."""

import operator
import os
import subprocess
import sys
import textwrap
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import DTYPES, alike, scales

from ampscale.backends.cpu import fused
from ampscale.backends.cpu.fused import FusedOp
from ampscale.backends.numpy import one_pass
from ampscale.backends.numpy.one_pass import run_host, spans_host
from ampscale.core.scaling import apply_factor

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
EVERY_FORMAT = pytest.mark.parametrize("name", ["float16", "bfloat16"])
POWERS = [2.0**k for k in (-140, -126, -100, *range(-26, 41, 2), 100, 126, 127)]
needs_numba = pytest.mark.skipif(fused.kernel_choice_host().module is None, reason="needs numba")


def defined(values, factor, divides=True, dtype=None):
    """Return *values* divided or multiplied by *factor*, as the core defines it."""
    with np.errstate(all="ignore"):
        return apply_factor(operator.truediv if divides else operator.mul, values, factor, dtype or values.dtype)


def check_pass(values, factor, divides=True, dtype=None):
    """Assert that a pass gives the definition's results and flag, in new arrays and, if *dtype* is None, in place as well."""
    expected = defined(values, factor, divides, dtype)
    op = FusedOp(factor, divides, checks=True)
    target = np.empty(values.shape, dtype or values.dtype)
    assert run_host(op, [values], [target]).finite == np.isfinite(expected.astype(np.float64)).all()
    assert alike(target, expected), (factor, divides)
    if dtype is None:
        target = [values.copy()]
        run_host(op, target, target)
        assert alike(target[0], expected), (factor, divides)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once", "SCALING-reciprocal")
@EVERY_FORMAT
@pytest.mark.usefixtures("each_kernel")
def test_powers_of_two_divide_every_pattern_as_defined(name):
    """Arrays contain all bit patterns, or only those of finite values."""
    values = PATTERNS.view(DTYPES[name])
    for patterns, factor in product((values, values[np.isfinite(values.astype(np.float32))]), POWERS):
        check_pass(patterns, factor)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once", "SCALING-widen")
@EVERY_FORMAT
@pytest.mark.usefixtures("each_kernel")
@given(factor=scales, divides=st.booleans())
@example(factor=0.0, divides=True)  # a rule without min_scale backs off to zero
def test_any_factor_divides_and_multiplies_every_pattern_as_defined(name, factor, divides):
    """Arrays contain all patterns, or nine. Results have 16 bits, or are widened to float32 or float64."""
    values = PATTERNS.view(DTYPES[name])
    check_pass(values, factor, divides)
    check_pass(values[:9], factor, divides)
    for dtype in (np.float32, np.float64):
        check_pass(values, factor, dtype=np.dtype(dtype))


@pytest.mark.clause("OVERFLOW-both-sides")
@EVERY_FORMAT
@pytest.mark.usefixtures("each_kernel")
def test_non_finite_patterns_are_detected(name):
    """One non-finite pattern in 17 is tested, between two zeros. An array of all finite patterns is finite."""
    values = PATTERNS.view(DTYPES[name])
    is_finite = np.isfinite(values.astype(np.float32))
    op, arrays = FusedOp(checks=True), [values[is_finite]]
    assert run_host(op, arrays, arrays).finite
    for bad in values[~is_finite][::17]:
        arrays = [np.array([0, bad, -0.0], values.dtype)]
        assert not run_host(op, arrays, arrays).finite


@pytest.mark.clause("NORMS-accumulation-dtype")
@EVERY_FORMAT
@pytest.mark.usefixtures("each_kernel")
def test_squares_of_finite_patterns_are_rounded_once(name):
    """One pattern in seven is tested, as an array whose sum of squares is one square, rounded to float32."""
    values = PATTERNS.view(DTYPES[name])
    values = values[np.isfinite(values.astype(np.float32))][::7]
    arrays = [values[index : index + 1] for index in range(values.size)]
    with np.errstate(over="ignore"):
        expected = values.astype(np.float32) ** 2
    assert alike(run_host(FusedOp(square_dtype="float32"), arrays, arrays).sums, expected)


LAYOUTS = {
    "rows": (lambda big: big.reshape(20, 30), True),
    "columns": (lambda big: big.reshape(20, 30).T, True),
    "three axes": (lambda big: big.reshape(2, 3, 100), True),
    "shape ()": (lambda big: big[:1].reshape(()), True),
    "empty": (lambda big: big[:0], True),
    "every second": (lambda big: big[::2], False),
    "transposed axes": (lambda big: big.reshape(2, 3, 100).transpose(1, 0, 2), False),
    "another byte order": (lambda big: big.astype(">f4"), False),
    "not aligned": (lambda big: np.frombuffer(b"1" + big.tobytes(), np.uint8)[1:].view(np.float32), False),
    "a subclass": (np.ma.masked_array, False),
    "a scalar": (lambda big: big[0], False),
    "integers": (lambda big: big.astype(np.int32), False),
}


@needs_numba
@pytest.mark.parametrize(("layout", "supported"), LAYOUTS.values(), ids=LAYOUTS)
def test_addresses_are_read_from_contiguous_arrays_only(layout, supported):
    """Addresses and sizes equal those of NumPy's documented attributes."""
    arrays = [layout(np.arange(600, dtype=np.float32)) for _ in range(3)]
    spans = spans_host(FusedOp(), arrays, arrays)
    assert (spans is not None) == supported
    if supported:
        assert spans.sources.tolist() == spans.targets.tolist() == [array.ctypes.data for array in arrays]
        assert spans.sizes.tolist() == [array.size for array in arrays]
        assert (spans.largest, spans.total) == (arrays[0].size, 3 * arrays[0].size)


def test_kernels_that_misread_addresses_or_sizes_are_not_used():
    """These kernels support no array, or read the right size but no address. NumPy's documented attributes show both."""
    for size in (-1, 12):
        wrong = ModuleType("kernels")
        wrong.read_arrays = lambda *_, size=size: (size, size, True)
        assert not one_pass._reads_arrays_host(wrong)


@needs_numba
def test_kernels_are_not_used_for_read_only_targets_and_targets_that_share_memory():
    """A target must also have the memory order of its source. A pass that only reads supports read-only arrays."""
    values = np.ones((4, 5), np.float32)
    frozen = values.copy()
    frozen.flags.writeable = False
    assert spans_host(FusedOp(), [frozen], [frozen])
    assert spans_host(FusedOp(2.0), [values], [frozen]) is None
    assert spans_host(FusedOp(2.0), [values], [values.copy(order="F")]) is None
    backwards = [values[2:], values[:2]]
    assert spans_host(FusedOp(2.0), backwards, backwards, disjoint=True)
    for shared in ([values, values], [values[1:], values[:2]]):
        assert spans_host(FusedOp(2.0), shared, shared, disjoint=True) is None


def output_of(code, **environment):
    """Return the output of *code* in a new process, where ``norm()`` computes a norm that must equal ``expected``."""
    prelude = """
        import os, sys, numpy as np
        from ampscale.backends.cpu import fused
        from ampscale.backends.numpy import backend
        def norm(dtype=np.float16):
            arrays = [np.arange(-5, 6).astype(dtype), np.full(70_000, 6, dtype)]
            unscaled, finite, value = backend.unscale_check_and_norm(arrays, 4.0, arrays)
            assert finite and unscaled[1][0] == 1.5
            return float(value)
        expected = float(np.sqrt(np.float32(110 / 16 + 70_000 * 2.25)))
    """
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


@pytest.mark.slow
@needs_numba
def test_processors_without_float16_conversions_use_numpy_for_float16():
    """Without this choice, a compiled conversion would crash the process. The kernels still process float32."""
    code = "print(fused.supports('float16'), fused.supports('float32'), norm() == norm(np.float32) == expected)"
    assert output_of(code, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", AMPSCALE_KERNELS="numba") == "False True True"


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize(
    "setup",
    [
        "caching.CacheImpl._locator_classes = []",
        "def full(self, path): raise OSError('No space left on device')\ncaching.IndexDataCacheFile._open_for_write = full",
    ],
    ids=["no folder is writable", "disk is full"],
)
def test_kernels_are_compiled_if_nothing_can_be_cached(tmp_path, setup):
    """Without a cache on disk, each process compiles the kernels again."""
    code = f"""
from numba.core import caching
{setup}
print(norm() == expected, fused.kernel_choice_host().module.run_spans.__module__)
"""
    environment = {"AMPSCALE_KERNELS": "numba", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert output_of(code, **environment) == "True ampscale.backends.cpu.kernels"
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.slow
@needs_numba
def test_damaged_cache_is_replaced(tmp_path):
    """A crash of the machine or a full disk can damage the files in which numba caches the kernels."""
    code = "print(norm() == expected, sum(fused.kernel_choice_host().module.run_spans.stats.cache_hits.values()))"
    environment = {"AMPSCALE_KERNELS": "numba", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert output_of(code, **environment) == "True 0"
    for suffix in ("nbi", "nbc"):
        for path in tmp_path.rglob(f"*.{suffix}"):
            path.write_bytes(path.read_bytes()[:100])
        assert output_of(code, **environment) == "True 0"
        assert output_of(code, **environment) == "True 1"


@needs_numba
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_use_kernels_of_their_parent():
    """The parent process has already used the kernels, including in threads."""
    code = """
        big = np.ones(9_000_000, np.float32)
        results = norm(), float(backend.global_norm([big]))
        process = os.fork()
        if not process:
            os._exit(0 if (norm(), float(backend.global_norm([big]))) == results == (expected, 3000.0) else 1)
        print(os.waitpid(process, 0)[1])
    """
    assert output_of(code, AMPSCALE_KERNELS="numba", AMPSCALE_THREADS="2") == "0"


MISSING = "sys.modules['numba'] = None"


@pytest.mark.parametrize(
    ("setup", "environment", "reason"),
    [
        ("", {"AMPSCALE_KERNELS": "numpy"}, "AMPSCALE_KERNELS is numpy"),
        (MISSING, {"AMPSCALE_KERNELS": "auto"}, "numba cannot be used: "),
        pytest.param("", {"NUMBA_DISABLE_JIT": "1"}, "numba cannot be used: NUMBA_DISABLE_JIT is set", marks=needs_numba),
    ],
    ids=["chosen", "missing", "disabled"],
)
def test_numpy_computes_without_compiled_kernels(setup, environment, reason):
    """`kernel_choice_host` also returns the reason why the kernels are not used."""
    environment = {"AMPSCALE_KERNELS": "auto"} | environment
    code = f"{setup}\nprint(norm() == expected, *fused.kernel_choice_host())"
    assert output_of(code, **environment).startswith(f"True None {reason}")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("numba", "ImportError: AMPSCALE_KERNELS is numba, but numba cannot be used: "),
        ("fast", "ValueError: AMPSCALE_KERNELS must"),
    ],
)
def test_an_unusable_choice_of_kernels_raises(value, error):
    """The error is raised by the first pass."""
    code = f"""
        {MISSING}
        try:
            norm()
        except Exception as error:
            print(f"{{type(error).__name__}}: {{error}}")
    """
    assert output_of(code, AMPSCALE_KERNELS=value).startswith(error)


@pytest.mark.parametrize(("squares", "expected"), [([1e308] * 3, np.inf), ([1e308, 1e308, np.nan], np.nan), ([3.0, 4.0], 7.0)])
def test_a_nan_in_one_part_survives_an_overflow_in_another(squares, expected):
    """The parts are those of one array, and their sums of squares are added."""
    assert alike(fused.added(squares, [0] * len(squares), 1), np.array([expected]))
