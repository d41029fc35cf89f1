"""Fused NumPy passes against the definitions of the core: layouts, special values, sums and memory."""

import tracemalloc
from itertools import cycle

import numpy as np
import pytest
from libraries import close
from strategies import DTYPES, alike
from strategies import same as same_with_warnings

from ampscale.backends.cpu import threads
from ampscale.backends.numpy import backend, blocks
from ampscale.core import norms, overflow, scaling
from ampscale.core.trees import map_leaves

ARRAY_DTYPES = [*DTYPES.values(), np.dtype(np.complex64), np.dtype(np.complex128)]
LENGTHS = [1, 2, 255, 257, 4096, 4097, 65_537, 262_143, 262_145, 600_001]


def random(shape, dtype=np.float32, seed=0):
    """Return normally distributed values in *dtype*; the two parts of a complex number are equal."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values * (1 + 1j) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def same(left, right):
    """Return the result of `strategies.same`, without the warning of ml_dtypes about signaling NaNs in bfloat16."""
    with np.errstate(invalid="ignore"):
        return same_with_warnings(left, right)


def check_all(tree, scale, dtype=None):
    """
    Assert that functions return what the definition returns, and that norms are arrays, not scalars as from NumPy's reductions.

    Clipped values are compared only if the norms have equal bits.
    """
    copy = map_leaves(np.array, tree)
    with np.errstate(all="ignore"):
        expected, finite, norm = norms.unscale_check_and_norm(copy, scale, None, dtype)
        local = norms.local_norms(expected)
        clipped = norms.clip_by_global_norm(expected, 0.5)
    assert same(backend.scale(tree, scale), scaling.scale(copy, scale))
    assert same(backend.unscale(tree, scale, dtype), expected)
    assert same([*backend.unscale_and_check(tree, scale, None, dtype)], [expected, finite])
    unscaled, flag, actual_norm = backend.unscale_check_and_norm(tree, scale, None, dtype)
    assert same([unscaled, flag], [expected, finite])
    assert close(actual_norm, norm)
    assert same(backend.all_finite(tree), overflow.all_finite(copy))
    actual_clipped, clipping_norm = backend.clip_by_global_norm(expected, 0.5)
    global_norm = backend.global_norm(expected)
    assert close(global_norm, norm)
    assert {type(array) for array in (actual_norm, clipping_norm, global_norm)} == {np.ndarray}
    assert close(backend.local_norms(expected), local)
    if clipped[1] == global_norm:
        assert same(actual_clipped, clipped[0])
    assert same(tree, copy)


def check_in_place(tree, scale, out=None):
    """Assert that unscaling into *out*, by default *tree* itself, gives what the definition gives for copies."""
    expected, finite = overflow.unscale_and_check(map_leaves(np.array, tree), scale)
    out = tree if out is None else out
    unscaled, flag = backend.unscale_and_check(tree, scale, out)
    assert unscaled is out
    assert same([unscaled, flag], [expected, finite])


@pytest.mark.clause(
    "BACKENDS-bit-identical", "OVERFLOW-fused", "OVERFLOW-edges", "NORMS-fused", "NORMS-clip-before", "SCALING-complex"
)
@pytest.mark.parametrize("dtype", ARRAY_DTYPES, ids=str)
def test_results_equal_the_definition_for_random_bits(dtype):
    """One array is longer than a block; another has zeros instead of the infinities and NaNs."""
    values = np.frombuffer(np.random.default_rng(0).bytes(150_001 * dtype.itemsize), dtype)
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(values), values, np.zeros(1, dtype))
    for scale in (65536.0, 1.0, 3.0, 2.0**-126, 1e-40):
        check_all([values], scale)
        check_all({"a": finite, "b": [values[:5], None, finite[:100]]}, scale)
        check_in_place([finite.copy(), values[:70_000].copy()], scale)
    check_all([finite[:3000].reshape(30, 100)] * 3, 3.0)


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-both-sides")
@pytest.mark.parametrize("dtype", DTYPES)
def test_non_finite_values_are_detected_at_all_boundaries(dtype):
    """Positions are the first, the last, and those at the boundaries of rows and blocks. The norm is not finite either."""
    boundaries = [0, 255, 256, 4095, 4096, 32_767, 65_535, 65_536, 131_071, 131_072, 262_143, 262_144, 524_288]
    for length in LENGTHS:
        values = random(length, DTYPES[dtype])
        adjacent = [boundary + step for boundary in (*boundaries, length // 2) for step in (-1, 0, 1)]
        indices = sorted({index % length for index in (*adjacent, length - 1)})
        for index, bad in zip(indices, cycle([np.inf, np.nan, -np.inf]), strict=False):
            original = values[index]
            values[index] = bad
            _, finite, norm = backend.unscale_check_and_norm([values], 3.0)
            flags = backend.all_finite([values]), backend.unscale_and_check([values], 65536.0)[1], finite, np.isfinite(norm)
            assert not any(flags), (length, index, bad)
            values[index] = original
        assert backend.unscale_check_and_norm([values], 65536.0)[1]


@pytest.mark.clause("NORMS-global", "NORMS-accumulation-dtype", "NORMS-local")
@pytest.mark.parametrize("kind", ["constant", "random", "huge", "tiny", "zero squares", "one huge"])
def test_norms_are_accurate_to_two_units_in_the_last_place(kind):
    """
    Cases include rounding errors of one sign, and squares that overflow or underflow.

    Squares of 2**-75 are rounded to zero in float32.
    """
    for length in (1, 10, 255, 1000, 1009, 4096, 5000, 99_999, 1_000_000):
        for factor in np.random.default_rng(length).uniform(1, 4, 8 if length < 100_000 else 2):
            values = random(length) * np.float32(factor) if kind == "random" else np.full(length, factor, np.float32)
            values *= np.float32({"huge": 2.0**63, "tiny": 2.0**-70, "zero squares": 2.0**-75}.get(kind, 1))
            if kind == "one huge":
                values[length // 2] = 1e25
            scaled = values * np.float32(256)
            tree = [values, values * np.float32(0.7), values] if length < 5000 else [values]
            with np.errstate(all="ignore"):
                expected = norms.global_norm([values, values[:5]])
                local = norms.local_norms(tree)
            assert close(backend.global_norm([values, values[:5]]), expected)
            assert close(backend.unscale_check_and_norm([values, values[:5]], 1.0)[2], expected)
            if np.isfinite(scaled).all():
                assert close(backend.unscale_check_and_norm([scaled, scaled[:5]], 256.0)[2], expected)
            assert close(backend.local_norms(tree), local)


@pytest.mark.clause("NORMS-accumulation-dtype")
@pytest.mark.parametrize("length", [1, 1000, 400_001])
def test_norms_with_a_float64_array_are_accurate_in_float64(length):
    """Narrower arrays are squared in float64 too; the tolerance is two units of float64."""
    tree = [random(length), random(length, np.float64, 1), random(length, np.float16, 2), random(length, DTYPES["bfloat16"], 3)]
    assert close(backend.global_norm(tree), norms.global_norm(tree))
    assert close(backend.local_norms(tree), norms.local_norms(tree))
    constant = [np.full(length, 1.1), np.full(length, 1 / 3, np.complex128)]
    assert close(backend.global_norm(constant), norms.global_norm(constant))


LAYOUTS = {
    "shape ()": lambda big: big[7:8].reshape(()),
    "empty": lambda big: big[:0].reshape(0, 3),
    "every second": lambda big: big[::2],
    "backwards": lambda big: big[::-1],
    "columns": lambda big: big.reshape(500, 400)[:, 3:390],
    "transposed": lambda big: big.reshape(200, 1000).T,
    "three axes": lambda big: big.reshape(40, 50, 100).transpose(1, 2, 0)[::-1, ::3],
    "Fortran": lambda big: np.asfortranarray(big.reshape(200, 1000)),
    "small Fortran": lambda big: np.asfortranarray(big[:60].reshape(6, 10)),
    "small columns": lambda big: big[:60].reshape(6, 10)[:, ::2],
    "a matrix": lambda big: big.reshape(200, 1000),
}


@pytest.mark.clause("SCALING-layout", "SCALING-widen", "BACKENDS-bit-identical")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_results_equal_the_definition_in_every_layout(layout):
    """Results are new arrays, widened arrays, or written in place. The memory between the values of a target is unchanged."""
    for name, scale, wider in (
        ("float16", 2.0**16, "float32"), ("bfloat16", 3.0, "float64"), ("float32", 2.0**16, "float64"), ("complex64", 3.0, None)
    ):  # fmt: skip
        dtype = DTYPES.get(name, name)
        values = layout(random(200_000, dtype))
        values.flags.writeable = False
        check_all([values, layout(random(200_000, dtype, 1))], scale)
        check_all([values], scale, wider)
        whole = random(200_000, dtype)
        expected = whole.copy()
        target = layout(expected)
        target[...] = scaling.unscale(layout(whole), scale)
        check_in_place([layout(whole)], scale)
        assert alike(whole, expected), (dtype, scale)


@pytest.mark.clause("OVERFLOW-in-place")
@pytest.mark.parametrize("length", [6, 300_000])
def test_shared_memory_is_read_before_it_is_written(length):
    """Arrays share memory with each other, with *out* or with themselves. Disjoint views of one buffer are written in place."""
    array = random(2 * length)
    view = array[1:]
    check_in_place([array, array], 3.0)
    check_in_place([view, view], 3.0)
    check_in_place([view, view], 3.0, [view, np.empty_like(view)])
    check_in_place({"all": array, "part": array[2:]}, 3.0)
    check_in_place([array[:-2]], 3.0, [array[2:]])
    check_in_place([array[:length], array[length:]], 3.0, [array[length:], array[:length]])
    check_in_place([array], 3.0, [array[::-1]])
    check_in_place([array[:4], array[::-1][:4]], 3.0, [np.empty(4, np.float32), array[:4]])
    check_in_place([array[:length], array[length:]], 3.0)
    check_in_place([array[:length]], 3.0, [array[:length]])
    check_in_place([array[:length]], 3.0, [array[length:]])
    check_in_place([array[::2], array[1::2]], 3.0)
    window = np.lib.stride_tricks.as_strided(array, (length - 2, 2), (4, 4))
    expected = array.copy()
    expected_window = np.lib.stride_tricks.as_strided(expected, (length - 2, 2), (4, 4))
    overflow.unscale_and_check([expected_window], 3.0, [expected_window])
    backend.unscale_and_check([window], 3.0, [window])
    assert alike(array, expected)


@pytest.mark.clause("SCALING-inputs")
def test_arrays_with_their_own_arithmetic_use_it():
    """Examples are masked arrays and arrays in another byte order. Scalars are treated as arrays."""
    swapped = backend.unscale([np.array([2 + 4j, 6], ">c8")], 2.0)[0]
    assert (swapped.dtype, swapped.tolist()) == (np.dtype(">c8"), [1 + 2j, 3])
    masked = np.ma.masked_array([1.0, np.nan, 3.0], [False, True, False], np.float32)
    for leaf in (masked, np.array([1.0, np.inf], ">f4"), np.float32(3), np.float64(3)):
        actual, *flag_and_norm = backend.unscale_check_and_norm([leaf], 3.0)
        expected, finite, norm = norms.unscale_check_and_norm([leaf], 3.0)
        assert same([actual, backend.unscale([leaf], 3.0), *flag_and_norm], [expected, expected, finite, norm])
        assert same([*backend.unscale_and_check([leaf], 3.0)], [expected, finite])
        assert type(actual[0]) is type(backend.unscale([leaf], 3.0)[0]) is type(expected[0])


def test_memory_maps_are_written_in_place(tmp_path):
    """The file contains the results; new arrays are not memory maps."""
    mapped = np.memmap(tmp_path / "values", np.float32, "w+", shape=300_000)
    mapped[...] = random(300_000)
    check_all([mapped], 3.0)
    assert type(backend.unscale([mapped], 3.0)[0]) is np.ndarray
    check_in_place([mapped], 3.0)
    mapped.flush()
    assert alike(np.fromfile(tmp_path / "values", np.float32), np.asarray(mapped))


@pytest.mark.parametrize(("count", "shapes"), [("1", [(10_000, 200)] * 3), ("2", [(6_000_000,)])], ids=["three", "one"])
def test_unscaling_in_place_allocates_at_most_4_mib(shapes, count, monkeypatch):
    """The arrays take 24 megabytes."""
    monkeypatch.setenv(threads.VARIABLE, count)
    tree = [np.ones(shape, np.float32) for shape in shapes]
    for function in (backend.unscale_and_check, backend.unscale_check_and_norm):
        tracemalloc.start()
        try:
            function(tree, 1.0, tree)
            assert tracemalloc.get_traced_memory()[1] <= 4 << 20
        finally:
            tracemalloc.stop()


def test_blocks_gather_small_arrays_and_cut_large_ones():
    """The blocks together contain each value once."""
    tree = [random(n) for n in (10, 5000, 20, 0, 4096, 5_000_000, 70, 4096)] + [random(10, np.float64)] * 2 + [random((0, 3))]
    tree += [random(4000) for _ in range(40)] + [random((700, 900))[:, ::2]]
    values = {}
    all_blocks = blocks.blocks_of(tree, tree)
    for block in all_blocks:
        for index, source in zip(block.indices, block.sources, strict=True):
            values.setdefault(index, []).append(source)
    assert sorted(values) == [index for index, array in enumerate(tree) if array.size]
    joined = {index: np.concatenate([part.reshape(-1) for part in parts]) for index, parts in values.items()}
    assert all(alike(np.sort(joined[index]), np.sort(tree[index], axis=None)) for index in values)
    assert sum(len(block.indices) > 1 for block in all_blocks) >= 2
    assert max(sum(source.size for source in block.sources) for block in all_blocks) <= blocks.BLOCK
