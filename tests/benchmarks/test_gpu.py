"""Tests of `benchmarks/gpu_check.sh`, as far as a machine without a GPU can run it."""

import json
import math
import sys
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import gpu_bounds
import gpu_check
import gpu_report
import gpu_rows
import numpy as np
import pytest
import shapes
from backends import platforms

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ("unscale_and_check", "unscale_check_and_norm")
SMALL = {"float16": ("largest", 370), "bfloat16": ("largest", 370), "float32": ("1x10", 10)}


@pytest.fixture
def bench():
    """Yield a function that creates a `Bench` of a few small arrays on the CPU, in each dtype."""
    by_name = {"largest": shapes.Shape("largest", "two", ((300,), (70,))), "1x10": shapes.Shape("1x10", "one", ((10,),))}
    pairs = [(by_name[name], dtype) for dtype, (name, _) in SMALL.items()]
    with mock.patch.multiple(gpu_rows, SAMPLE=1e-5, SAMPLES=3):
        yield lambda library, **options: gpu_rows.Bench(library, pairs, device="cpu", **options)


def check(rows, implementations, dtypes=tuple(SMALL)):
    """Check that each implementation has a consistent row for each function, and each dtype that torch does not reject."""
    assert [row for row in rows if "failure" in row] == []
    by_key = {(row["implementation"], row["function"], row["dtype"], row["shape"]): row for row in rows}
    assert len(by_key) == len(rows)
    for dtype in dtypes:
        shape, values = SMALL[dtype]
        copy = next(row for row in rows if (row["function"], row["dtype"], row["shape"]) == ("copy", dtype, shape))
        assert copy["bytes"] == values * (4 if dtype == "float32" else 2)
        for implementation, operation in product(implementations, OPERATIONS):
            if (implementation, dtype) in gpu_bounds.REJECTED:
                assert (implementation, operation, dtype, shape) not in by_key
                continue
            row = by_key[implementation, operation, dtype, shape]
            assert row["values"] == values
            assert 0 < row["quartiles"][0] <= row["ms"] <= row["quartiles"][1]
            assert row["over_copy"] == pytest.approx(row["ms"] / copy["ms"])


def test_rows_of_torch_run(bench):
    """
    Dtypes that torch's scaler or kernel rejects on CUDA have no rows.

    The functions that use ampscale's kernels also have rows without them, for the largest shape in two dtypes.
    """
    pytest.importorskip("torch")
    import gpu_torch

    rows = list(gpu_torch.rows(bench("torch")))
    check(rows, ("ampscale", "torch foreach", "ampscale, GradScaler", "torch.amp"))
    without_cupy = [row["function"] for row in rows if row["implementation"] == "ampscale, no CuPy"]
    elsewhere = (f"{operation}, by 3, elsewhere" for operation in OPERATIONS)
    assert without_cupy == ["all_finite", "global_norm", *elsewhere] * 2


def test_torch_implementations_compute_the_same_results():
    """Each implementation unscales in place. With a norm, it returns that of its results."""
    torch = pytest.importorskip("torch")
    import gpu_torch as implementations

    scale = torch.full((), 0.5)
    for operation in OPERATIONS:
        tree = [torch.ones(3), torch.full((2,), 4.0)]
        _, finite, *norm = implementations.ours(operation, tree, scale)()
        assert finite
        assert norm == ([pytest.approx(140**0.5)] if operation == "unscale_check_and_norm" else [])
        assert [array.tolist() for array in tree] == [[2, 2, 2], [8, 8]]
        assert implementations.foreach(operation, tree, scale)() == (pytest.approx(35**0.5) if norm else None)
        assert [array.tolist() for array in tree] == [[1, 1, 1], [4, 4]]
        for run in implementations.scalers(operation, tree, "cpu").values():
            assert run() == (pytest.approx(35**0.5) if norm else None)


def test_rows_of_jax_run(bench):
    """Each call is one program of several kernels. Shapes with thousands of arrays, which compile for minutes, are skipped."""
    pytest.importorskip("jax")
    import gpu_jax

    jax_bench = bench("jax")
    jax_bench.shapes = [(shapes.MANY, "float32"), jax_bench.shapes[1]]
    skipped, *rows = gpu_jax.rows(jax_bench)
    assert skipped == {"skipped": "jax, 10,000 x 1,000, float32: XLA takes minutes to compile it"}
    check(rows, ("ampscale, jitted", "jax.numpy, jitted"), ("bfloat16",))
    counted = [row["operations"] for row in rows if row["function"] != "copy"]
    assert {count["programs"] for count in counted} == {1}
    assert min(count["kernels"] for count in counted) >= 2


def test_kernels_of_jax_are_counted():
    """A reduction and a matrix product cannot be fused into one kernel."""
    jax = pytest.importorskip("jax")
    import gpu_jax

    array = jax.numpy.ones((300, 300))
    assert gpu_jax.operations(gpu_jax.compiled(lambda x: -x, array)[0]) == {"programs": 1, "kernels": 1}
    several = gpu_jax.operations(gpu_jax.compiled(lambda x: x - x.sum(0) @ x, array)[0])
    assert several["kernels"] > 1


@pytest.fixture
def cupy_rows():
    """Return a function that creates a `Measured` for CuPy's rows, with the kernels compiled for the host."""
    platform = platforms.host()
    with mock.patch.dict(sys.modules, {"cupy": platform.library, "ampscale.backends.cupy.launches": platform.kernels}):
        sys.modules.pop("gpu_cupy", None)
        import gpu_cupy
    return partial(gpu_cupy.Measured, library=platform.library, functions=platform.backend, kernels=platform.kernels)


def test_rows_of_cupy_run(bench, cupy_rows):
    """The kernels, copies and fills of a first call and of the next call are counted."""
    cupy_bench = bench("cupy")
    rows = list(cupy_bench.each(cupy_rows(cupy_bench, graph=lambda run: run).rows))
    check(rows, ("ampscale",))
    ours = [row for row in rows if row["function"] in OPERATIONS]
    assert all(row["replayed_ms"] > 0 for row in ours)
    for row in ours:
        kernels = 1 if row["function"] == OPERATIONS[0] else 3
        assert row["first_call"] == {"kernels": kernels, "copies": 1, "fills": 1}
        assert row["operations"] == {"kernels": kernels, "copies": 0, "fills": 1}
    largest = Counter(row["function"] for row in rows if row["shape"] == "largest")
    assert {name: count for name, count in largest.items() if name not in (*OPERATIONS, "copy")} == {
        "all_finite": 2,
        "global_norm": 2,
        "unscale_and_check, by 3, elsewhere": 2,
    }


def test_arrays_are_filled_with_random_values(bench, cupy_rows):
    """Each array repeats one random block without zeros, since some hardware is faster for zeros."""
    few = gpu_rows.block("float16", 64)
    cupy_measured = cupy_rows(bench("cupy"), graph=None)
    with mock.patch.dict(cupy_rows.func._arrays.__globals__, block=lambda _: few):  # gpu_cupy is not in sys.modules anymore
        arrays = cupy_measured._arrays(*bench("cupy").shapes[0])
    assert [array.tolist() for array in arrays] == [np.resize(few, size).tolist() for size in (300, 70)]
    assert few.all()


def test_failed_row_is_reported(bench):
    """A row for which no time remains is a failure too. The other rows are measured."""
    late = bench("some", deadline=0.0)
    assert {row["failure"].rpartition(": ")[2] for row in late.each(lambda *_: [])} == {"no time remained"}

    def measured(shape, dtype):
        if dtype == "bfloat16":
            raise RuntimeError("out of memory")
        yield {"shape": shape.name, "dtype": dtype}

    rows = [row.get("failure", row.get("dtype")) for row in bench("some").each(measured)]
    assert rows == ["float16", "some, two, bfloat16: RuntimeError: out of memory", "float32"]


def test_largest_shape_has_a_billion_values():
    """
    The sizes of the 300 arrays differ up to a hundredfold.

    There are fewer values if the memory has no space for five float32 copies.
    """
    sizes = gpu_rows.lengths(gpu_rows.largest(10**12))
    assert (len(sizes), round(sum(sizes), -4)) == (300, 10**9)
    assert math.isclose(sizes[-1] / sizes[0], 100, rel_tol=1e-3)
    assert sum(gpu_rows.lengths(gpu_rows.largest(16 * 10**9))) * 4 * 5 <= 16 * 10**9


def result_rows(library=None, **changed):
    """Return rows that just meet all bounds, with changed values for one library."""
    implementations = [
        *gpu_bounds.OURS.items(),
        ("torch", gpu_bounds.SCALER),
        *((home, implementation) for home, others in gpu_bounds.OTHERS.items() for implementation in others),
    ]
    good = {"ms": 1.0, "replayed_ms": 1.0, "over_copy": 1.5, "operations": {"kernels": 1, "fills": 1}}
    good["first_call"] = {"kernels": 1, "copies": 1, "fills": 1}
    rows = []
    for (home, implementation), operation, (shape, dtype) in product(implementations, OPERATIONS, gpu_rows.all_shapes(10**12)):
        row = {"library": home, "implementation": implementation, "function": operation, "dtype": dtype, "shape": shape.name}
        rows.append({**row, "arrays": shape.description, **good, **(changed if home == library else {})})
    copy = {"library": "cupy", "implementation": "device to device", "function": "copy", "shape": "largest", "arrays": ""}
    return rows + [{**copy, "ms": 0.9, "over_copy": 1.0, "dtype": dtype} for dtype in gpu_rows.DTYPES]


PASSED = {"outcomes": {"test_cuda_graphs_capture_train_step": "passed"}}


@pytest.mark.parametrize(
    ("library", "key", "value", "expected"),
    [
        (None, "ms", 1.0, set()),
        ("cupy", "ms", 1.01, {"copy", "cupy"}),
        ("cupy", "replayed_ms", 1.01, {"copy", "cupy"}),
        ("torch", "ms", 0.99, {"cupy"}),
        ("torch", "replayed_ms", 0.99, {"cupy"}),
        ("jax", "ms", 0.99, {"cupy"}),
        ("cupy", "operations", {"kernels": 2, "fills": 1}, {"launches"}),
        ("cupy", "first_call", {"kernels": 2, "copies": 1, "fills": 1}, {"launches"}),
    ],
)
def test_missed_bounds_are_reported(library, key, value, expected):
    """One percent, or one launch, above the bound is a miss. All bounds are measured."""
    results = gpu_bounds.bounds(result_rows(library, **{key: value}), PASSED)
    assert len({bound["id"] for bound in results}) == len(results)
    assert {bound["met"] for bound in results} <= {True, False}
    assert {bound["id"].split("/")[0] for bound in results if bound["met"] is False} == expected


def test_bound_of_the_captured_step_follows_its_test():
    """If the test fails, the bound is missed; if it is skipped, the bound is not measured."""
    for outcome, met in (("failed", False), ("error", False), ("skipped", None), (None, None), ("passed", True)):
        results = {bound["id"]: bound for bound in gpu_bounds.bounds([], {"outcomes": {gpu_bounds.STEP: outcome}})}
        assert results["captured-step"]["met"] is met
    assert {bound["met"] for bound in gpu_bounds.bounds([], {})} == {None}


def test_bound_of_the_captured_step_names_an_existing_test():
    """The verdict on the bound is the outcome of this test."""
    assert f"def {gpu_bounds.STEP}(gpu)" in (ROOT / "tests" / "backends" / "cupy" / "test_backend.py").read_text()


@pytest.fixture
def report(tmp_path):
    """Return a report without results."""
    return gpu_report.Report("NVIDIA H200", [], tmp_path)


def test_outcomes_are_read_while_the_tests_run(report):
    """A parametrized test has the worst outcome of its cases."""
    passed = "tests/x.py::test_a", "tests/x.py::test_a[a b] PASSED  [ 20%]", "[gw1] [ 60%] PASSED tests/y.py::test_c"
    failed = "[gw0] [ 40%] FAILED tests/x.py::test_a[2]", "____ ERROR collecting tests/z.py ____"
    for line in (*passed, *failed, "tests/x.py::test_b SKIPPED [50%]"):
        report.add_test(line)
    outcomes = {"test_a": "failed", "test_b": "skipped", "test_c": "passed", "tests/z.py": "error"}
    assert report.tests == {"passed": 2, "skipped": 1, "failed": 1, "error": 1, "outcomes": outcomes}
    assert report.failed() == ["test test_a", "test tests/z.py"]


def test_rows_are_saved_when_they_are_added(report):
    """Failures and rows that were not replayed fail the run, and skipped shapes do not."""
    row, *_ = result_rows("cupy")
    for line in (row, {"skipped": "this"}, {"failure": "that"}, {**row, "not_replayed": "why"}):
        report.add_row(json.dumps(line))
    written = json.loads(report.path.read_text())
    assert [row["ms"] for row in written["rows"]] == [1.0, 1.0]
    assert written["skipped"] == ["this"]
    assert written["failures"] == report.failed() == ["that", f"{gpu_report.described(row)}: not replayed: why"]


def test_run_that_fails_keeps_its_lines():
    """Complete output lines are used at once, an incomplete line is dropped, and the exit status or timeout is returned."""
    source = "import sys, time; print(1); print(2); print(3, end='', flush=True); "
    for end, failure in (("sys.exit(3)", "exit status 3"), ("time.sleep(60)", "stopped after 1 seconds"), ("sys.exit()", None)):
        lines = []
        failures = gpu_check.run("some", [sys.executable, "-IS", "-c", source + end], 1, lines.append)
        assert (lines, failures) == (["1", "2"], [f"some: {failure}"] if failure else [])
