"""NumPy's passes against the definitions of the core: layouts, special places, sums, memory and threads."""

import os
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, LARGEST, alike, arrays, scales
from strategies import same as same_aloud

from ampscale.backends.numpy import backend, blocks, one_pass, threads
from ampscale.core import norms, overflow, scaling
from ampscale.core.trees import map_leaves

KINDS = [*DTYPES.values(), np.dtype(np.complex64), np.dtype(np.complex128)]
LENGTHS = [1, 2, 255, 257, 4096, 4097, 65_537, 262_143, 262_145, 600_001]


def random(shape, dtype=np.float32, seed=0, size=1.0):
    """Normal numbers of a standard deviation, in *dtype*."""
    values = np.random.default_rng(seed).standard_normal(shape) * size
    return (values * (1 + 1j) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def of_bits(shape, dtype, seed=0):
    """Any bit patterns: infinities and NaNs among them where there are many."""
    dtype = np.dtype(dtype)
    return np.frombuffer(np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()


def same(left, right):
    """As it is everywhere, but ml_dtypes warns of a signalling NaN in bfloat16."""
    with np.errstate(invalid="ignore"):
        return same_aloud(left, right)


def close(norm, other):
    """Whether norms have one dtype and differ by at most two units in the last place, each."""
    norm, other = np.asarray(norm), np.asarray(other)
    if norm.dtype != other.dtype or norm.shape != other.shape:
        return False
    with np.errstate(invalid="ignore"):
        near = np.abs(norm - other) <= 2 * np.spacing(np.maximum(norm, other))
    return all(ok or alike(left, right) for ok, left, right in zip(near.flat, norm.flat, other.flat, strict=True))


def check_all(tree, scale, dtype=None):
    """Every verb gives on *tree* what the core's definition gives."""
    before = map_leaves(np.array, tree)
    with np.errstate(all="ignore"):
        wanted, finite, norm = norms.unscale_check_and_norm(before, scale, None, dtype)
        each, clipped = norms.local_norms(wanted), norms.clip_by_global_norm(wanted, 0.5)
    assert same(backend.scale(tree, scale), scaling.scale(before, scale))
    assert same(backend.unscale(tree, scale, dtype), wanted)
    assert same([*backend.unscale_and_check(tree, scale, None, dtype)], [wanted, finite])
    got, flag, length = backend.unscale_check_and_norm(tree, scale, None, dtype)
    assert same([got, flag], [wanted, finite])
    assert close(length, norm)
    assert same(backend.all_finite(tree), overflow.all_finite(before))
    assert close(backend.global_norm(wanted), norm)
    assert close(backend.local_norms(wanted), each)
    if close(clipped[1], norm) and clipped[1] == backend.global_norm(wanted):
        assert same(backend.clip_by_global_norm(wanted, 0.5)[0], clipped[0])
    assert same(tree, before)


def check_in_place(tree, scale, out=None):
    """Unscaling into *out*, which is *tree* unless it is said, gives what the definition gives for copies."""
    wanted, finite = overflow.unscale_and_check(map_leaves(np.array, tree), scale)
    out = tree if out is None else out
    got, flag = backend.unscale_and_check(tree, scale, out)
    assert got is out
    assert same([got, flag], [wanted, finite])


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-dtype-kept")
@given(st.lists(st.sampled_from(sorted(DTYPES)).flatmap(arrays), min_size=1, max_size=6), scales)
def test_many_small_arrays_of_several_dtypes_are_each_its_own(tree, scale):
    """Gathered with others of its dtype, every array comes out as it does alone."""
    check_all(tree, scale)
    check_in_place(tree, scale)


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-fused", "NORMS-fused", "SCALING-complex")
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_any_bits_give_what_the_definition_gives(dtype):
    """Arrays of any patterns, one of them longer than a block, with most infinities and NaNs taken out in another."""
    values = of_bits(300_001, dtype)
    with np.errstate(invalid="ignore"):
        tame = np.where(np.isfinite(values), values, np.zeros(1, dtype))
    for scale in (65536.0, 1.0, 3.0, 2.0**-126, 1e-40):
        check_all([values], scale)
        check_all({"a": tame, "b": [values[:5], None, tame[:100]]}, scale)
        check_in_place([tame.copy(), values[:70_000].copy()], scale)
    check_all([tame[:3000].reshape(30, 100)] * 3, 3.0)


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-both-sides")
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bad_value_is_seen_wherever_it_is(dtype):
    """First, last, and on both sides of the borders of rows and blocks."""
    borders = [0, 255, 256, 4095, 4096, 32_767, 65_535, 65_536, 131_071, 131_072, 262_143, 262_144, 524_288]
    for length in LENGTHS:
        values = random(length, DTYPES[dtype])
        places = {place % length for border in (*borders, length // 2) for place in (border - 1, border, border + 1, length - 1)}
        for place, bad in zip(sorted(places), cycle([np.inf, np.nan, -np.inf]), strict=False):
            kept, values[place] = values[place], bad
            _, finite, norm = backend.unscale_check_and_norm([values], 3.0)
            seen = backend.all_finite([values]), backend.unscale_and_check([values], 65536.0)[1], finite, np.isfinite(norm)
            assert not any(seen), (length, place, bad)
            values[place] = kept
        assert backend.unscale_check_and_norm([values], 65536.0)[1]


@pytest.mark.clause("OVERFLOW-elementwise", "OVERFLOW-edges")
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_whose_products_overflow_are_finite(dtype):
    """The largest ones of a dtype, of both signs."""
    for length in (2, 300, 5000, 300_000):
        values = np.full(length, LARGEST[dtype])
        values[::2] *= -1
        assert backend.unscale_and_check([values], 2.0)[1]
        assert not backend.unscale_and_check([values], 0.5)[1]
        assert not backend.unscale_check_and_norm([values], 0.5)[1]
        check_all([values], 1.0)


@pytest.mark.clause("NORMS-global", "NORMS-accumulation-dtype", "NORMS-local")
@pytest.mark.parametrize("kind", ["constant", "random", "huge", "tiny", "lost", "one huge"])
def test_norms_are_right_to_two_units(kind):
    """Where all roundings err to one side, where squares overflow, and where they underflow."""
    for length in (1, 10, 255, 1000, 1009, 4096, 5000, 99_999, 1_000_000):
        for factor in np.random.default_rng(length).uniform(1, 4, 8 if length < 100_000 else 2):
            values = np.full(length, factor, np.float32) if kind != "random" else random(length) * np.float32(factor)
            values *= np.float32({"huge": 2.0**63, "tiny": 2.0**-70, "lost": 2.0**-75}.get(kind, 1))
            values[length // 2] = 1e25 if kind == "one huge" else values[length // 2]
            scaled = values * np.float32(256)
            several = [values, values * np.float32(0.7), values] if length < 5000 else [values]
            with np.errstate(all="ignore"):
                wanted, each = norms.global_norm([values, values[:5]]), norms.local_norms(several)
            assert close(backend.global_norm([values, values[:5]]), wanted)
            assert close(backend.unscale_check_and_norm([values, values[:5]], 1.0)[2], wanted)
            assert not np.isfinite(scaled).all() or close(backend.unscale_check_and_norm([scaled, scaled[:5]], 256.0)[2], wanted)
            assert close(backend.local_norms(several), each)


@pytest.mark.clause("NORMS-accumulation-dtype")
def test_squares_at_the_edge_of_float32_count_as_in_the_definition():
    """Half a smallest number is rounded to nothing, however many come together, and beside ones that are not."""
    for values in ([2.0**-75] * 999, [2.0**-75, 2.0**-74.5] * 500, [2.0**-75] * 300_000, [2.0**-75, 2.0**-74.5] * 150_000):
        tree = [np.array(values, np.float32)]
        assert close(backend.global_norm(tree), norms.global_norm(tree))
        assert close(backend.unscale_check_and_norm([tree[0] * np.float32(2.0**40)], 2.0**40)[2], norms.global_norm(tree))


@pytest.mark.clause("NORMS-accumulation-dtype")
@pytest.mark.parametrize("length", [1, 1000, 400_001])
def test_beside_float64_squares_are_taken_in_it(length):
    """To two units of float64."""
    tree = [random(length), random(length, np.float64, 1), random(length, np.float16, 2), random(length, DTYPES["bfloat16"], 3)]
    assert close(backend.global_norm(tree), norms.global_norm(tree))
    assert close(backend.local_norms(tree), norms.local_norms(tree))
    constant = [np.full(length, 1.1), np.full(length, 1 / 3, np.complex128)]
    assert close(backend.global_norm(constant), norms.global_norm(constant))


@pytest.mark.clause("NORMS-accumulation-dtype")
def test_a_blas_that_adds_up_carelessly_is_not_used(monkeypatch):
    """One number after the other in float32: then squares are added up as the core does."""

    def careless(left, right):
        return np.add.accumulate(left * right, axis=1, dtype=np.float32)[:, -1]

    monkeypatch.setattr(blocks, "_multiply_rows", careless)
    blocks.rows_are_accurate_host.cache_clear()
    try:
        assert not blocks.rows_are_accurate_host()
        check_all([np.full(300_000, 1.3, np.float32), np.full(512, 1.7, np.float32)], 2.0)
    finally:
        monkeypatch.undo()
        blocks.rows_are_accurate_host.cache_clear()


def test_rows_are_multiplied_alike_without_vecdot():
    """NumPy before 2.0 has a product of matrices only."""
    left, right = random((7, 256)), random((7, 256), seed=1)
    found = blocks._matmul_rows(left, right)
    assert found.shape == (7,)
    assert np.allclose(found, (left * right).sum(axis=1), rtol=1e-4, atol=1e-4)


LAYOUTS = {
    "shape ()": lambda big: big[7:8].reshape(()),
    "empty": lambda big: big[:0].reshape(0, 3),
    "every second": lambda big: big[::2],
    "backwards": lambda big: big[::-1],
    "columns": lambda big: big[:250_000].reshape(500, 500)[:, 3:400],
    "transposed": lambda big: big[:250_000].reshape(250, 1000).T,
    "three axes": lambda big: big[:240_000].reshape(40, 60, 100).transpose(1, 2, 0)[::-1, ::3],
    "Fortran": lambda big: np.asfortranarray(big[:250_000].reshape(250, 1000)),
    "small Fortran": lambda big: np.asfortranarray(big[:60].reshape(6, 10)),
    "small columns": lambda big: big[:60].reshape(6, 10)[:, ::2],
    "a matrix": lambda big: big[:300_000].reshape(300, 1000),
}


@pytest.mark.clause("SCALING-layout", "SCALING-widen", "BACKENDS-bit-identical")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_gives_what_the_definition_gives(layout):
    """As new arrays, wider ones, and in place; what lies between is left alone."""
    for dtype, scale, wider in zip(KINDS, cycle((2.0**16, 3.0)), cycle(("float32", "float64")), strict=False):
        values = layout(random(300_000, dtype))
        values.flags.writeable = False
        check_all([values, layout(random(300_000, dtype, 1))], scale)
        check_all([values], scale, wider)
        whole = random(300_000, dtype)
        wanted = whole.copy()
        target = layout(wanted)
        target[...] = scaling.unscale(layout(whole), scale)
        check_in_place([layout(whole)], scale)
        assert alike(whole, wanted), (dtype, scale)


@pytest.mark.clause("OVERFLOW-in-place")
@pytest.mark.parametrize("length", [6, 300_000])
def test_memory_that_is_shared_is_read_before_it_is_written(length):
    """
    The same array twice, views that overlap, out that is shifted, and arrays that overlap themselves.

    Views of one buffer that do not overlap, and other objects of the same memory, are written in place.
    """
    array, half = random(2 * length), length
    view = array[1:]
    check_in_place([array, array], 3.0)
    check_in_place([view, view], 3.0)
    check_in_place([view, view], 3.0, [view, np.empty_like(view)])
    check_in_place({"all": array, "part": array[2:]}, 3.0)
    check_in_place([array[:-2]], 3.0, [array[2:]])
    check_in_place([array[:half], array[half:]], 3.0, [array[half:], array[:half]])
    check_in_place([array], 3.0, [array[::-1]])
    check_in_place([array[:4], array[::-1][:4]], 3.0, [np.empty(4, np.float32), array[:4]])
    check_in_place([array[:half], array[half:]], 3.0)
    check_in_place([array[:half]], 3.0, [array[:half]])
    check_in_place([array[:half]], 3.0, [array[half:]])
    check_in_place([array[::2], array[1::2]], 3.0)
    window = np.lib.stride_tricks.as_strided(array, (length - 2, 2), (4, 4))
    wanted = array.copy()
    expected = np.lib.stride_tricks.as_strided(wanted, (length - 2, 2), (4, 4))
    overflow.unscale_and_check([expected], 3.0, [expected])
    backend.unscale_and_check([window], 3.0, [window])
    assert alike(array, wanted)


@pytest.mark.clause("SCALING-inputs")
def test_what_has_an_arithmetic_of_its_own_keeps_it():
    """Masked arrays and those in another byte order, complex ones too; scalars are arrays like others."""
    swapped = backend.unscale([np.array([2 + 4j, 6], ">c8")], 2.0)[0]
    assert (swapped.dtype, swapped.tolist()) == (np.dtype(">c8"), [1 + 2j, 3])
    masked = np.ma.masked_array([1.0, np.nan, 3.0], [False, True, False], np.float32)
    for leaf in (masked, np.array([1.0, np.inf], ">f4"), np.float32(3), np.float64(3)):
        got, *answers = backend.unscale_check_and_norm([leaf], 3.0)
        wanted, *expected = norms.unscale_check_and_norm([leaf], 3.0)
        assert same([got, backend.unscale([leaf], 3.0), *answers], [wanted, wanted, *expected])
        assert same([*backend.unscale_and_check([leaf], 3.0)], [wanted, expected[0]])
        assert type(got[0]) is type(backend.unscale([leaf], 3.0)[0]) is type(wanted[0])


def test_a_map_of_a_file_is_written_through(tmp_path):
    """In place, and what is new is no map."""
    mapped = np.memmap(tmp_path / "values", np.float32, "w+", shape=300_000)
    mapped[...] = random(300_000)
    check_all([mapped], 3.0)
    assert type(backend.unscale([mapped], 3.0)[0]) is np.ndarray
    check_in_place([mapped], 3.0)
    mapped.flush()
    assert alike(np.fromfile(tmp_path / "values", np.float32), np.asarray(mapped))


@pytest.mark.parametrize(("count", "shapes"), [("1", [(10_000, 200)] * 10), ("2", [(20_000_000,)])], ids=["ten", "one"])
def test_four_megabytes_do_for_eighty(shapes, count, monkeypatch):
    """Of memory beside the arrays, at the most, in place."""
    monkeypatch.setenv(threads.VARIABLE, count)
    tree = [np.ones(shape, np.float32) for shape in shapes]
    for verb in (backend.unscale_and_check, backend.unscale_check_and_norm):
        tracemalloc.start()
        try:
            verb(tree, 1.0, tree)
            assert tracemalloc.get_traced_memory()[1] <= 4 << 20
        finally:
            tracemalloc.stop()


def results_with(count, tree, monkeypatch):
    """Of every verb, with that many threads."""
    monkeypatch.setenv(threads.VARIABLE, str(count))
    clipped = backend.clip_by_global_norm(tree, 1.0)
    return [backend.unscale_check_and_norm(tree, 3.0), clipped, backend.local_norms(tree), backend.all_finite(tree)]


@pytest.mark.clause("BACKENDS-bit-identical")
def test_threads_change_no_bit(monkeypatch):
    """One, two or three, on large and small arrays of several dtypes; several callers at once."""
    tree = [random(5_000_000), random(300, seed=1), random(2_000_000, np.float16, 2), random((700, 900), np.complex64, 3)[:, ::2]]
    tree += [random(5000, np.float64, 4), random(100, DTYPES["bfloat16"], 5), random(3_000_000, DTYPES["bfloat16"], 6)]
    alone = results_with(1, tree, monkeypatch)
    for count in (2, 3, 64):
        assert same([*results_with(count, tree, monkeypatch)], [*alone])
    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(lambda _: results_with(2, tree, monkeypatch), range(3)):
            assert same([*results], [*alone])


def test_a_wrong_number_of_threads_is_told(monkeypatch):
    """With what came, where threads may be used."""
    array = np.ones(5_000_000)
    for wrong in ("0", "-1", "two", "", "1.5", " 2"):
        monkeypatch.setenv(threads.VARIABLE, wrong)
        with pytest.raises(ValueError, match=f"AMPSCALE_THREADS must be a positive int, got {wrong!r}"):
            backend.all_finite([array])


def test_threads_are_those_of_the_cores_that_may_be_used(monkeypatch):
    """Unless the variable says something else."""
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    threads._usable_cores.cache_clear()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert threads.thread_count_host() == usable
    monkeypatch.setenv(threads.VARIABLE, "7")
    assert threads.thread_count_host() == 7


def doubled(numbered):
    """The results of the tasks that are left."""
    return [(index, 2 * task) for index, task in numbered]


def test_a_failure_in_a_thread_is_raised():
    """After all threads have come to an end, also where two of three fail."""
    everyone, ended = threading.Barrier(3), []

    def fail(numbered):
        _, task = next(numbered)
        everyone.wait()
        if task < 3:
            raise KeyError(task)
        time.sleep(0.05)
        ended.append(task)
        return []

    assert threads.in_threads(doubled, [2, 3, 4, 5, 6], 3) == [4, 6, 8, 10, 12]
    assert threads.in_threads(doubled, [], 1) == []
    for tasks in permutations((1, 2, 3)):
        with pytest.raises(KeyError):
            threads.in_threads(fail, list(tasks), 3)
        assert ended.pop() == 3


def test_the_caller_does_the_work_where_no_thread_can_start(monkeypatch):
    """After an error it leaves no task for a thread that starts later."""
    taken = []

    def refuse(thread):
        raise RuntimeError(f"can't start {thread}")

    def fail(numbered):
        taken.append(next(numbered, None))
        raise KeyError(taken)

    threads._pool.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert threads.in_threads(doubled, [2, 3, 4], 3) == [4, 6, 8]
    with pytest.raises(KeyError):
        threads.in_threads(fail, [2, 3, 4], 3)
    monkeypatch.undo()
    with threads._pool(2) as pool:
        pool.submit(id, None)
    threads._pool.cache_clear()
    assert taken == [(0, 2), None]


@pytest.mark.parametrize(
    "leave", ["atexit.register(run)", "run(); atexit.register(run)", "threading.Thread(target=outlive).start()"]
)
def test_a_pass_runs_while_the_interpreter_exits(leave):
    """In `atexit`, before and after the threads have started, and in a thread that outlives the main one."""
    code = f"""
        import atexit, os, threading, numpy as np, ampscale
        os.environ["AMPSCALE_THREADS"] = "2"
        main = threading.main_thread()
        def run():
            grads, finite = ampscale.unscale_and_check([np.full(9_000_000, 8.0, np.float32)], 8.0)
            assert bool(finite) and (grads[0] == 1).all()
            print("ran", end=" ")
        def outlive():
            main.join()
            run()
        {leave}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True)
    assert (set(done.stdout.split()), done.stderr) == ({"ran"}, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own():
    """
    And gets the same results. The import alone starts no thread.

    In a process of its own: libraries that this one has imported do not let it fork in peace.
    """
    code = """
        import os, threading, numpy as np, ampscale
        assert threading.active_count() == 1
        os.environ["AMPSCALE_THREADS"] = "2"
        def found():
            grads, finite, norm = ampscale.unscale_check_and_norm([np.arange(9_000_000, dtype=np.float32)], 8.0)
            return grads[0].tobytes(), bool(finite), float(norm)
        alone = found()
        child = os.fork()
        if not child:
            os._exit(0 if found() == alone else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_small_arrays_are_gathered_and_large_ones_cut():
    """All of them are worked on, each by its own place, with the same cuts whoever works on them."""
    tree = [random(n) for n in (10, 5000, 20, 0, 4096, 5_000_000, 70, 4096)] + [random(10, np.float64)] * 2 + [random((0, 3))]
    tree += [random(4000) for _ in range(20)]
    units = one_pass.units_of(tree, tree)
    values = {}
    for unit in units:
        for place, part in zip(unit.places, unit.sources, strict=True):
            values.setdefault(place, []).append(part.reshape(-1))
    assert sorted(values) == [place for place, array in enumerate(tree) if array.size]
    assert all(alike(np.concatenate(parts), tree[place].reshape(-1)) for place, parts in values.items())
    assert next(len(unit.places) for unit in units if len(unit.places) > 1) >= 5
    assert max(sum(part.size for part in unit.sources) for unit in units) <= one_pass.SEGMENT
