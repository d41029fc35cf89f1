"""CUDA kernels of the CuPy backend: the compiled instructions, and the launches."""

import ctypes
import re
import shutil
import subprocess
from contextlib import contextmanager
from importlib.resources import files
from itertools import product
from unittest import mock

import numpy as np
import pytest
from backends.cupy import host_cupy
from backends.platforms import host
from strategies import DTYPES, same

SOURCE = files("ampscale.backends").joinpath("cuda/kernels.cu")
ROW = 40  # bytes of a row of the table
PAIRS = [("float16", "float16"), ("bfloat16", "float32"), ("float32", "float32"), ("float32", "float64"), ("float64", "float64")]


@pytest.fixture(scope="module")
def platform():
    """Return the kernels compiled for the host."""
    return host()


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    """Return the PTX for a device, compiled with the options of the backend and with `-ftz=true`, which CuPy always adds."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    target = tmp_path_factory.mktemp("ptx") / "kernels.ptx"
    text = ""
    constants = ["THREADS=256", "CHUNK=16384", "DEPTH=4", "TABLE_PART=800", "DOWN=1e-180", "UP=1e180", "LEAST=1e-120"]
    constants += ["BINS=278", "LOWEST=-150", "NO_SMALLEST=32767", "NO_LARGEST=-32768"]
    passes = [
        (f"-DPASS={kind}_{source}_{target}", f"-DIN={source}", f"-DOUT={target}", *macros)
        for kind, macros in (("pass", ()), ("measure", ["-DSTATISTICS"]), ("histogram", ["-DEXPONENTS"]))
        for source, target in PAIRS
    ]
    for options in ((), *passes):
        definitions = [*(f"-D{constant}" for constant in constants), *options]
        subprocess.run(["nvcc", "-ptx", "-fmad=false", *definitions, "-ftz=true", str(SOURCE), "-o", str(target)], check=True)
        text += target.read_text()
    return text


@pytest.mark.slow
@pytest.mark.clause("SCALING-round-once")
def test_device_arithmetic_conforms_to_ieee_754(ptx):
    """
    No instruction flushes or approximates.

    Only quotients of numbers narrower than float64 are computed with fused multiply-adds; only histograms use atomic operations.
    """
    for kernel in re.split(r"\.entry ", ptx)[1:]:
        name = kernel.partition("(")[0]
        assert ("fma." in kernel) == bool(re.match(r"(pass|measure|histogram)_(?!float64)", name)), name
        assert bool(re.search(r"\b(?:atom|red)\.", kernel)) == name.startswith("histogram"), name
    assert re.findall(r"\.ftz|\.approx|\bmad\.\w*\.f|\.full", ptx) == []
    assert {"div.rn.f32", "div.rn.f64", "mul.rn.f32", "sqrt.rn.f64", "cvt.rn.f16.f32"} <= set(
        re.findall(r"[a-z]+\.rn[.\w]+", ptx)
    )


@pytest.mark.slow
def test_kernels_read_and_write_16_bytes_at_a_time(ptx):
    """A thread reads four packs of 16 bytes before it writes the first, or two if it divides."""
    for kernel in re.split(r"\.entry ", ptx)[1:]:
        if kernel.startswith(("pass_", "measure_")):
            assert re.search(r"\bld\S*\.v(4\.u32|4\.f32|2\.f64)", kernel), kernel.partition("(")[0]
            assert re.search(r"\bst\S*\.v(4\.u32|4\.f32|2\.f64)", kernel), kernel.partition("(")[0]
            order = "".join(re.findall(r"\b([ls])[dt]\S*\.v[24]\.", kernel))
            assert set(re.findall(r"l+", order)) == {"ll", "llll"}, kernel.partition("(")[0]


def test_table_parts_fit_into_the_kernel_parameters():
    """CUDA 13 allows 32,764 bytes, and older versions 4096. The other parameters of a kernel are two addresses and a number."""
    text = SOURCE.parents[1].joinpath("cupy/launches.py").read_text("utf-8")
    (parts,) = re.findall(r"^TABLE_PART = (\d+) if .* else (\d+)", text, re.MULTILINE)
    for part, limit in zip(parts, (32764, 4096), strict=True):
        assert int(part) * ROW + 20 <= limit


@pytest.mark.clause("SCALING-round-once")
def test_bfloat16_is_rounded_to_nearest(platform):
    """Ties go to even. Every NaN stays a NaN: a NaN with all bits set would become zero if it were rounded up."""
    library = platform.kernels._module(None)._library
    random = np.random.default_rng(0).integers(0, 2**32, 20_000, np.uint32)
    edges = np.asarray(
        [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000, 0x7F7FFFFF, 0x00008000, 0x00018000, 0x3F808001], np.uint32
    )
    values = np.concatenate([edges, random])
    rounded = np.asarray([library.as_bfloat16(ctypes.c_uint(value)) & 0xFFFF for value in values.tolist()], np.uint16)
    with np.errstate(invalid="ignore"):
        assert same(rounded.view(DTYPES["bfloat16"]), values.view(np.float32).astype(DTYPES["bfloat16"]))


def test_plan_assigns_every_number_to_one_chunk(platform):
    """Rows are grouped by dtypes, and chunks are numbered across all rows. A complex number counts as two."""
    chunk = platform.kernels.CHUNK
    sizes = [(1, np.float32), (0, np.float16), (chunk, np.float16), (chunk + 1, np.complex64), (0, np.float32)]
    arrays = platform.put([np.zeros(size, dtype) for size, dtype in sizes])
    rows, owners, launches, _ = platform.kernels.plan_of(platform.kernels.operands_of(arrays))
    assert rows[:, 2:].tolist() == [[0, 0, 1], [chunk, 0, 2], [1, 1, 0], [2 * chunk + 2, 2, 3], [0, 5, 4]]
    assert owners.tolist() == [1, 2, 3, 3, 3]
    assert launches == [("float16_float16", 0, 1), ("float32_float32", 1, 4)]
    assert rows[:, 0].tolist() == [arrays[position].data.ptr for position in rows[:, 4]]


@contextmanager
def operations():
    """Yield a list that on exit contains the device operations of the block."""
    start = len(host_cupy.operations)
    recorded = []
    yield recorded
    recorded.extend(host_cupy.operations[start:])


@pytest.mark.clause("OVERFLOW-fused", "OVERFLOW-in-place")
def test_the_first_call_takes_three_operations_and_later_ones_two(platform):
    """The first call copies the table, fills the flag and runs the pass. A norm takes two more. Only the flag is allocated."""
    tree = [np.full(1 + index % 5, index, np.float32) for index in range(300)]
    arrays = platform.put(tree)
    platform.kernels._cached_table.cache_clear()
    for table in (["copy"], []):
        with operations() as recorded:
            platform.backend.unscale_and_check(arrays, 1.0, out=arrays)
        assert recorded == [*table, "fill", "pass_float32_float32"]
    with operations() as recorded:
        platform.backend.unscale_check_and_norm(arrays, 1.0, out=arrays)
    assert recorded == ["fill", "pass_float32_float32", "square_sums_float32", "norms_float32"]
    assert same(platform.to_numpy(arrays), tree)
    for container in (lambda tree: tree, list, tuple):
        with mock.patch.object(platform.library, "empty", side_effect=platform.library.empty) as empty:
            platform.backend.unscale_and_check(arrays, 1.0, out=container(arrays))
        assert [call.args for call in empty.call_args_list] == [((),)]


@pytest.mark.clause("SCALING-reciprocal")
def test_no_scale_needs_a_division_per_number(platform):
    """Each thread computes the reciprocal of the scale once. Some reciprocals are inexact or subnormal."""
    size, threads = 5 * platform.kernels.CHUNK, host_cupy.SMALL["THREADS"]
    array = platform.put(np.ones(size, np.float16))
    divisions = platform.kernels._module("pass_float16_float16")._library.divisions
    platform.backend.unscale([array], 2.0)
    for scale in (2.0**16, 2.0**-10, 3.0, 2.0**127):
        divisions()  # resets the count
        platform.backend.unscale([array], scale)
        assert divisions() == 5 * threads


def hard_quotients(divisors):
    """
    Yield arrays a and b whose quotients are next to a midpoint m of two float32 numbers: a * 2**digits = m * b + distance.

    The kernel computes a number that is less than 5.1 / (2**digits * b) away from a / b, before it is rounded. The
    integers a and b have 24 bits; m is odd and has 25 bits.
    """
    for digits, distance, power in product((24, 25), (*range(-5, 0), *range(1, 6)), (1, 2, 4)):
        if distance % power:
            continue
        b = divisors[divisors % (2 * power) == power]
        odd = inverse = b // power
        for _ in range(5):
            inverse = inverse * (2 - odd * inverse)  # modulo 2**64
        modulus = 2**digits // power
        for start in range(0, 2**25, modulus):
            middle = (inverse * -(distance // power)) % modulus + start
            a = (middle * b + distance) >> digits
            exists = (middle >= 2**24) & (middle % 2 == 1) & (a >= 2**23) & (a < 2**24)
            yield a[exists].astype(np.float32), b[exists].astype(np.float32)


def kernel_quotients(platform, numbers, divisors):
    results = np.empty(len(numbers), np.float32)
    addresses = (ctypes.c_void_p(array.ctypes.data) for array in (numbers, divisors, results))
    platform.kernels._module(None)._library.divide(*addresses, ctypes.c_long(len(results)))
    return results


@pytest.mark.clause("SCALING-unscale-divides", "SCALING-round-once")
@pytest.mark.parametrize("step", [101, pytest.param(1, marks=pytest.mark.slow)])
def test_the_hardest_quotients_are_rounded_correctly(platform, step):
    """A step of 1 covers all hard cases, and so proves that every quotient without overflow and underflow is correct."""
    count = 0
    for first in range(2**23, 2**24, 2**20):
        for a, b in hard_quotients(np.arange(first, first + 2**20, step)):
            assert same(kernel_quotients(platform, a, b), a / b)
            count += len(a)
    assert count > 2**24 / step


@pytest.mark.clause("SCALING-unscale-divides", "SCALING-round-once")
def test_quotients_of_random_bits_are_rounded_correctly(platform):
    """Numbers and divisors have all magnitudes, or are zero, infinite or NaN. Divisors have no sign bit."""
    rng = np.random.default_rng(0)
    infinity = 0x7F800000
    edges = np.asarray([0, 1, 2**23 - 1, 2**23, infinity - 1, infinity, infinity + 1], np.uint32)
    numbers, divisors = (
        np.concatenate([rng.integers(0, 2**31, 10**6, np.uint32), rng.choice(edges, 10**5)]).view(np.float32) for _ in range(2)
    )
    numbers = np.copysign(rng.permutation(numbers), rng.choice(np.float32([-1, 1]), len(numbers)))
    with np.errstate(all="ignore"):
        assert same(kernel_quotients(platform, numbers, divisors), numbers / divisors)


def test_tables_are_copied_once_for_every_stream(platform):
    """The order within a stream guarantees that the copy precedes the reads."""
    array = platform.put(np.ones(3, np.float32))
    stream = platform.library.cuda.get_current_stream()
    for number, copies in ((1, 1), (1, 0), (2, 1), (1, 0)):
        stream.ptr = number
        with operations() as recorded:
            platform.backend.all_finite(array)
        assert recorded.count("copy") == copies
    stream.ptr = 0


def test_each_device_has_its_own_table(platform):
    """Empty arrays have the same address on both devices, and the default streams of both devices have the same number."""
    arrays = platform.put([np.ones(0, np.float32)])
    runtime = platform.library.cuda.runtime
    for number, copies in ((1, 1), (2, 1), (1, 0)):
        runtime.device = number
        with operations() as recorded:
            platform.backend.global_norm(arrays)
        assert recorded.count("copy") == copies
    runtime.device = 0


def test_captures_write_their_own_table(platform):
    """During a capture, the table is not copied, not cached, and not taken from the cache. A launch writes up to three rows."""
    arrays = platform.put([np.full(3, 8, np.float32)] * 7)
    stream = platform.library.cuda.get_current_stream()
    for capturing, copies, writes in ((True, 0, 3), (True, 0, 3), (False, 1, 0), (False, 0, 0), (True, 0, 3)):
        stream.capturing = capturing
        with operations() as recorded:
            platform.backend.unscale_and_check(arrays, 2.0, out=arrays)
        assert (recorded.count("copy"), recorded.count("write_rows")) == (copies, writes)
    stream.capturing = False
    assert same(arrays, [np.full(3, 0.25, np.float32)] * 7)
