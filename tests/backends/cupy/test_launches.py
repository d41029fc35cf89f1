"""The kernels of CuPy's backend: what a CUDA compiler makes of them, and what their launches are told."""

import ctypes
import re
import shutil
import subprocess
from contextlib import contextmanager
from importlib.resources import files
from unittest import mock

import numpy as np
import pytest
from backends.cupy import host_cupy
from backends.places import host
from strategies import DTYPES, same

SOURCE = files("ampscale.backends").joinpath("cuda/kernels.cu")
ROW = 40  # bytes


@pytest.fixture(scope="module")
def place():
    """The kernels on the host."""
    return host()


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    """The instructions for a device, from the options that CuPy compiles with, ours and the one that it always adds."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    target = tmp_path_factory.mktemp("ptx") / "kernels.ptx"
    definitions = [
        "-DTHREADS=256",
        "-DCHUNK=16384",
        "-DDEPTH=4",
        "-DTABLE_PART=96",
        "-DDOWN=1e-180",
        "-DUP=1e180",
        "-DLEAST=1e-120",
    ]
    subprocess.run(["nvcc", "-ptx", "-fmad=false", *definitions, "-ftz=true", str(SOURCE), "-o", str(target)], check=True)
    return target.read_text()


@pytest.mark.slow
@pytest.mark.clause("SCALING-round-once")
def test_arithmetic_on_a_device_is_ieee_754(ptx):
    """
    Subnormal numbers are kept, nothing is approximate, and nothing is fused to round once instead of twice.

    There are no atomic operations, of which nobody knows the order.
    """
    assert re.findall(r"\.ftz|\.approx|\bfma\.|\bmad\.\w*\.f|\.full|\b(?:atom|red)\.", ptx) == []
    assert {"div.rn.f32", "div.rn.f64", "mul.rn.f32", "sqrt.rn.f64", "cvt.rn.f16.f32"} <= set(
        re.findall(r"[a-z]+\.rn[.\w]+", ptx)
    )


@pytest.mark.slow
def test_sixteen_bytes_are_read_and_written_at_a_time(ptx):
    """Each pass has loads and stores of whole packs; four are read before the first is written, or two where it divides."""
    for kernel in re.split(r"\.entry ", ptx)[1:]:
        if kernel.startswith("pass_"):
            assert re.search(r"\bld\S*\.v(4\.u32|4\.f32|2\.f64)", kernel), kernel.partition("(")[0]
            assert re.search(r"\bst\S*\.v(4\.u32|4\.f32|2\.f64)", kernel), kernel.partition("(")[0]
            order = "".join(re.findall(r"\b([ls])[dt]\S*\.v[24]\.", kernel))
            assert set(re.findall(r"l+", order)) == {"ll", "llll"}, kernel.partition("(")[0]


def test_a_part_of_a_table_fits_into_the_arguments_of_a_kernel():
    """CUDA gives them 4096 bytes; beside the part there are an address and a number."""
    text = SOURCE.parents[1].joinpath("cupy/launches.py").read_text("utf-8")
    (part,) = re.findall(r"^TABLE_PART = (\d+)", text, re.MULTILINE)
    assert int(part) * ROW + 16 <= 4096


@pytest.mark.clause("SCALING-round-once")
def test_bfloat16_is_rounded_to_nearest(place):
    """With ties to even, and every NaN remains one: a device's own has all bits set, and rounded up it would be zero."""
    library = place.kernels._module()._library
    spread = np.random.default_rng(0).integers(0, 2**32, 20_000, np.uint32)
    edges = np.asarray(
        [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000, 0x7F7FFFFF, 0x00008000, 0x00018000, 0x3F808001], np.uint32
    )
    values = np.concatenate([edges, spread])
    found = np.asarray([library.as_bfloat16(ctypes.c_uint(value)) & 0xFFFF for value in values.tolist()], np.uint16)
    with np.errstate(invalid="ignore"):
        assert same(found.view(DTYPES["bfloat16"]), values.view(np.float32).astype(DTYPES["bfloat16"]))


def test_a_plan_has_every_number_in_one_chunk(place):
    """The rows of one kernel stand together; chunks are counted through all of them; a complex array has twice its size."""
    chunk = place.kernels.CHUNK
    sizes = [(1, np.float32), (0, np.float16), (chunk, np.float16), (chunk + 1, np.complex64), (0, np.float32)]
    arrays = place.put([np.zeros(size, dtype) for size, dtype in sizes])
    rows, launches = place.kernels.plan(*place.kernels.described(arrays, None))
    assert rows[:, 2:].tolist() == [
        [0, 0, 1],
        [chunk, 0, 2],
        [1, 1, 0],
        [2 * chunk + 2, 2, 3],
        [0, 5, 4],
    ]
    assert launches == [("pass_float16_float16", 0, 2, 1), ("pass_float32_float32", 2, 3, 4)]
    assert rows[:, 0].tolist() == [arrays[position].data.ptr for position in rows[:, 4]]


@contextmanager
def operations():
    """All that a device would have been given to do meanwhile."""
    first, done = len(host_cupy.operations), []
    yield done
    done.extend(host_cupy.operations[first:])


@pytest.mark.clause("OVERFLOW-fused", "OVERFLOW-in-place")
def test_a_first_call_is_three_operations_and_the_next_one_two(place):
    """The table's copy, the flag's fill, and the pass; the norm takes two more. In place, only the flag is allocated."""
    tree = [np.full(1 + index % 5, index, np.float32) for index in range(300)]
    arrays = place.put(tree)
    place.kernels._cached_table.cache_clear()
    for table in (["copy"], []):
        with operations() as done:
            place.backend.unscale_and_check(arrays, 1.0, out=arrays)
        assert done == [*table, "fill", "pass_float32_float32"]
    with operations() as done:
        place.backend.unscale_check_and_norm(arrays, 1.0, out=arrays)
    assert done == ["fill", "pass_float32_float32", "square_sums_float32", "norms_float32"]
    assert same(place.got(arrays), tree)
    for container in (lambda tree: tree, list, tuple):
        with mock.patch.object(place.library, "empty", side_effect=place.library.empty) as empty:
            place.backend.unscale_and_check(arrays, 1.0, out=container(arrays))
        assert [call.args for call in empty.call_args_list] == [((),)]


@pytest.mark.clause("SCALING-reciprocal")
def test_a_power_of_two_costs_no_division_for_a_number(place):
    """It is turned over once by each thread of each block; any other scale divides every number."""
    size, threads = 5 * place.kernels.CHUNK, host_cupy.SMALL["THREADS"]
    array, divisions = place.put(np.ones(size, np.float16)), place.kernels._module()._library.divisions
    place.backend.unscale([array], 2.0)
    for scale, taken in ((2.0**16, 5 * threads), (2.0**-10, 5 * threads), (3.0, size), (2.0**127, size)):
        divisions()
        place.backend.unscale([array], scale)
        assert divisions() == taken


def test_a_table_is_copied_for_every_stream(place):
    """Only the order of one stream makes sure that it is there before it is read; and it is copied once there."""
    array, stream = place.put(np.ones(3, np.float32)), place.library.cuda.get_current_stream()
    for stream.ptr, copies in ((1, 1), (1, 0), (2, 1), (1, 0)):
        with operations() as done:
            place.backend.all_finite(array)
        assert done.count("copy") == copies
    stream.ptr = 0


def test_a_capture_has_a_table_of_its_own(place):
    """What a graph has captured is neither kept, since it has not happened yet, nor taken from what is kept, nor copied."""
    arrays, stream = place.put([np.full(3, 8, np.float32)] * 7), place.library.cuda.get_current_stream()
    for stream.capturing, copies, writes in ((True, 0, 3), (True, 0, 3), (False, 1, 0), (False, 0, 0), (True, 0, 3)):
        with operations() as done:
            place.backend.unscale_and_check(arrays, 2.0, out=arrays)
        assert (done.count("copy"), done.count("write_rows")) == (copies, writes)
    stream.capturing = False
    assert same(arrays, [np.full(3, 0.25, np.float32)] * 7)
