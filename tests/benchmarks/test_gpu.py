"""What `benchmarks/gpu_check.sh` does on a machine with a GPU, as far as a machine without one can run it."""

import importlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from backends import places

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
VERBS = ("unscale_and_check", "unscale_check_and_norm")


def script(name):
    """A module of the folder benchmarks, which import one another by their own names."""
    with mock.patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
        return importlib.import_module(name)


SMALL = {"float16": ("largest", 370), "bfloat16": ("largest", 370), "float32": ("1x10", 10)}


@pytest.fixture
def bench():
    """Makes the measuring of a few small arrays on the processor, in each dtype."""
    common, shapes = script("gpu_rows"), script("shapes")
    made = {"largest": shapes.Shape("largest", "two", ((300,), (70,))), "1x10": shapes.Shape("1x10", "one", ((10,),))}
    pairs = [(made[name], dtype) for dtype, (name, _) in SMALL.items()]
    with mock.patch.multiple(common, SAMPLE=1e-5, SAMPLES=3):
        yield lambda library, **more: common.Bench(library, pairs, place="cpu", **more)


def check(rows, ways, dtypes=tuple(SMALL)):
    """Every way has a row for every verb, shape and dtype, with a time that fits its quartiles and its copy."""
    assert [row for row in rows if "failure" in row] == []
    found = {(row["way"], row["verb"], row["dtype"], row["shape"]): row for row in rows}
    assert len(found) == len(rows)
    for dtype in dtypes:
        shape, values = SMALL[dtype]
        copy = next(row for row in rows if (row["verb"], row["dtype"], row["shape"]) == ("copy", dtype, shape))
        assert copy["bytes"] == values * (4 if dtype == "float32" else 2)
        for way, verb in product(ways, VERBS):
            if (way, dtype) == ("torch.amp", "float16"):
                assert (way, verb, dtype, shape) not in found
                continue
            row = found[way, verb, dtype, shape]
            assert row["values"] == values
            assert 0 < row["quartiles"][0] <= row["ms"] <= row["quartiles"][1]
            assert row["over_copy"] == pytest.approx(row["ms"] / copy["ms"])


def test_torchs_rows_run(bench):
    """Ours, the kernel and the scaler; float16 is not asked of the scaler, which refuses it."""
    pytest.importorskip("torch")
    check(list(script("gpu_torch").rows(bench("torch"))), ("ampscale", "torch foreach", "torch.amp"))


def test_torchs_ways_do_the_same():
    """What is timed there is what is asked for: each unscales in place, and sees an infinity."""
    torch, ways = pytest.importorskip("torch"), script("gpu_torch")
    one = torch.full((), 0.5)
    for verb in VERBS:
        tree = [torch.ones(3), torch.full((2,), 4.0)]
        _, finite, *norm = ways.ours(verb, tree, one)()
        assert finite
        assert [array.tolist() for array in tree] == [[2, 2, 2], [8, 8]]
        assert ways.foreach(verb, tree, one)() == (pytest.approx(35**0.5) if norm else None)
        assert [array.tolist() for array in tree] == [[1, 1, 1], [4, 4]]
        assert ways.amp(verb, tree, "cpu")() == (pytest.approx(35**0.5) if norm else None)


def test_jaxs_rows_run(bench):
    """
    Ours and what is written by hand, each one program of some kernels.

    XLA would take minutes for one of thousands of arrays; the note says so, and the other rows are there.
    """
    pytest.importorskip("jax")
    measuring = bench("jax")
    measuring.shapes = [(script("shapes").MANY, "float32"), measuring.shapes[1]]
    *rows, first, second = sorted(script("gpu_jax").rows(measuring), key=lambda row: "failure" in row)
    for each in (first, second):
        assert each["failure"].startswith("jax, 10,000 x 1,000, float32: ValueError: XLA takes minutes to compile")
    check(rows, ("ampscale, jitted", "jax.numpy, jitted"), ("bfloat16",))
    counted = [row["operations"] for row in rows if row["verb"] != "copy"]
    assert {count["programs"] for count in counted} == {1}
    assert min(count["kernels"] for count in counted) >= 2


def test_jaxs_kernels_are_counted():
    """A sum and its negation cannot be one, and a program that gives back what it is given has none of its own but a copy."""
    jax, rows = pytest.importorskip("jax"), script("gpu_jax")
    array = jax.numpy.ones((300, 300))
    assert rows.operations(rows.compiled(lambda given: -given, array)[0]) == {"programs": 1, "kernels": 1}
    several = rows.operations(rows.compiled(lambda given: given - given.sum(0) @ given, array)[0])
    assert several["kernels"] > 1


@pytest.fixture
def cupys():
    """Makes what measures CuPy's rows, on the kernels compiled for the host."""
    place = places.host()
    with mock.patch.dict(sys.modules, {"cupy": place.library, "ampscale.backends.cupy.launches": place.kernels}):
        sys.modules.pop("gpu_cupy", None)
        module = script("gpu_cupy")
    return partial(module.Measured, library=place.library, verbs=place.backend, kernels=place.kernels)


def test_cupys_rows_run(bench, cupys):
    """Called and replayed, with what a first call gives to the device and what the next one does."""
    measuring = bench("cupy")
    rows = list(measuring.each(cupys(measuring, graph=lambda run: run).rows))
    check(rows, ("ampscale",))
    ours = [row for row in rows if row["verb"] in VERBS]
    assert all(row["replayed_ms"] > 0 for row in ours)
    for row in ours:
        kernels = 1 if row["verb"] == VERBS[0] else 3
        assert row["first_call"] == {"kernels": kernels, "copies": 1, "fills": 1}
        assert row["operations"] == {"kernels": kernels, "copies": 0, "fills": 1}
    more = Counter(row["verb"] for row in rows if row["shape"] == "largest" and row["verb"] not in (*VERBS, "copy"))
    assert more == {"all_finite": 2, "global_norm": 2, "unscale_and_check, by 3, elsewhere": 2}


def test_a_call_that_cannot_be_captured_is_told(bench):
    """Its time is there without that of a replay, and says why."""
    refused = mock.Mock(side_effect=RuntimeError("capturing"))
    assert bench("some").replayed(refused, list) == {"not_replayed": "capturing"}


def test_numbers_that_are_measured_are_like_gradients(bench, cupys):
    """Hardware may compute zeros faster: each array is full of one block of random numbers, over and over."""
    few = script("gpu_rows").block("float16", 64)
    measuring = cupys(bench("cupy"), graph=None)
    with mock.patch.dict(cupys.func._arrays.__globals__, block=lambda _: few):
        arrays = measuring._arrays(*bench("cupy").shapes[0])
    assert [array.tolist() for array in arrays] == [np.resize(few, size).tolist() for size in (300, 70)]
    assert few.all()


def test_a_row_that_fails_is_noted(bench):
    """And so is one that no time is left for; the others are measured."""
    measuring = bench("some", deadline=0.0)
    assert {row["failure"].rpartition(": ")[2] for row in measuring.each(lambda *_: [])} == {"no time was left"}

    def measured(shape, dtype):
        if dtype == "bfloat16":
            raise RuntimeError("out of memory")
        yield {"shape": shape.name, "dtype": dtype}

    rows = list(bench("some").each(measured))
    assert [row.get("failure", row.get("dtype")) for row in rows] == [
        "float16",
        "some, two, bfloat16: RuntimeError: out of memory",
        "float32",
    ]


def test_the_largest_shape_has_a_thousand_million_numbers():
    """In three hundred arrays, some a hundred times larger than others; fewer where the memory has no room for them."""
    rows = script("gpu_rows")
    shape = rows.largest(10**12)
    sizes = rows.lengths(shape)
    assert (len(sizes), round(sum(sizes), -4)) == (300, 10**9)
    assert math.isclose(sizes[-1] / sizes[0], 100, rel_tol=1e-3)
    assert sum(rows.lengths(rows.largest(16 * 10**9))) * 4 * 5 <= 16 * 10**9
    names = {"largest", "1x100M", "100x1M", "10000x1000", "1x10", "resnet50", "gpt2"}
    assert {shape.name for shape, _ in rows.all_shapes(10**12)} >= names


def measured(library=None, **changed):
    """Rows as good as they are asked for: all times equal, launches as few as they may be; and changed for a library."""
    rows, bounds = script("gpu_rows"), script("gpu_bounds")
    ways = [*bounds.OURS.items(), *((home, way) for home, rivals in bounds.RIVALS.items() for way in rivals)]
    good = {"ms": 1.0, "replayed_ms": 1.0, "over_copy": 1.5, "operations": {"kernels": 1, "fills": 1}}
    good["first_call"] = {"kernels": 1, "copies": 1, "fills": 1}
    found = [
        {"library": home, "way": way, "verb": verb, "dtype": dtype, "shape": shape.name, "arrays": shape.words, **good}
        for home, way in ways
        for verb in VERBS
        for shape, dtype in rows.all_shapes(10**12)
    ]
    copy = {"library": "cupy", "way": "device to device", "verb": "copy", "shape": "largest", "arrays": "", "ms": 0.9}
    copies = [{**copy, "over_copy": 1.0, "dtype": dtype} for dtype in rows.DTYPES]
    return [{**row, **changed} if row["library"] == library else row for row in found] + copies


PASSED = {"outcomes": {"test_a_whole_step_is_captured": "passed"}}


@pytest.mark.parametrize(
    ("library", "key", "value", "wanted"),
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
def test_a_bound_that_is_missed_is_told(library, key, value, wanted):
    """
    One hundredth is enough, and one launch; rows that are just good enough meet all.

    None is left unmeasured: there is a row for each that is asked for.
    """
    held = script("gpu_bounds").bounds(measured(library, **{key: value}), PASSED)
    assert len({bound["id"] for bound in held}) == len(held)
    assert {bound["met"] for bound in held} <= {True, False}
    assert {bound["id"].split("/")[0] for bound in held if bound["met"] is False} == wanted


def test_a_step_that_was_not_captured_is_told():
    """A failed test is a bound that is missed; one that was skipped has measured nothing."""
    bounds = script("gpu_bounds").bounds
    for outcome, met in (("failed", False), ("error", False), ("skipped", None), (None, None), ("passed", True)):
        held = {bound["id"]: bound for bound in bounds([], {"outcomes": {"test_a_whole_step_is_captured": outcome}})}
        assert held["captured-step"]["met"] is met
    assert {bound["met"] for bound in bounds([], {})} == {None}


def test_the_test_of_the_step_has_the_name_that_is_looked_for():
    """Otherwise nobody would find it in the report."""
    assert f"def {script('gpu_bounds').STEP}(gpu)" in (ROOT / "tests" / "backends" / "cupy" / "test_backend.py").read_text()


def test_a_report_of_tests_is_read():
    """Counts, and for a test of several parameters the worst that became of it."""
    report = """<testsuites><testsuite><testcase name="a[1]"/><testcase name="a[2]"><failure/></testcase>
    <testcase name="b"><skipped/></testcase><testcase name="c"/><testcase name="d"><error/></testcase></testsuite></testsuites>"""
    outcomes = {"a": "failed", "b": "skipped", "c": "passed", "d": "error"}
    counts = {"passed": 2, "skipped": 1, "failed": 1, "error": 1}
    assert script("gpu_check").outcomes(report) == {**counts, "outcomes": outcomes}


def test_what_was_measured_can_be_read():
    """The table has a line for each row, and the verdict ends with the most important of what is not met."""
    check = script("gpu_check")
    rows = measured("cupy", ms=2.0)
    assert len(check.table(rows).splitlines()) == len(rows) + 1
    assert "1 kernels, 1 fills, at first 1 kernels, 1 copies, 1 fills" in check.table(rows)
    held = script("gpu_bounds").bounds(rows, {"outcomes": {script("gpu_bounds").STEP: "failed"}})
    lines = check.verdict(held).splitlines()
    assert lines[-2].startswith("NOT MET  copy/float16/ms: 0.45, share of the copy's bandwidth, called, at least 0.9")
    assert any(line.startswith("NOT MET  captured-step: failed") for line in lines)


def test_a_library_that_fails_keeps_what_it_has_said(tmp_path):
    """The rows until then are there, and a line that was cut off is not; what happened is noted, also where it takes too long."""
    check, far = script("gpu_check"), float("inf")
    said = 'import sys, time\nprint(\'{"ms": 1}\', flush=True)\nprint(\'{"ms\', end="", flush=True)\n'
    with mock.patch.object(check, "__file__", str(tmp_path / "gpu_check.py")), mock.patch.object(check, "LAST_ROW", 1):
        (tmp_path / "gpu_rows.py").write_text(said + "sys.exit(3)")
        assert check.asked("some", "rows", 5, far) == ([{"ms": 1}], ["some: rows: exit status 3"])
        (tmp_path / "gpu_rows.py").write_text(said + "time.sleep(60)")
        assert check.asked("some", "rows", 1, far) == ([{"ms": 1}], ["some: rows: stopped after 2 seconds"])


@pytest.mark.parametrize(
    ("python", "words"),
    [
        pytest.param(sys.executable, "finds a CUDA device here", marks=pytest.mark.slow, id="GPU"),
        pytest.param("/nowhere/python", "set PYTHON", id="interpreter"),
    ],
)
def test_what_is_missing_is_said_and_nothing_written(python, words):
    """A GPU or an interpreter; the one command exits with 2."""
    before = sorted(BENCHMARKS.rglob("*.json"))
    environment = {**os.environ, "PYTHON": python, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([BENCHMARKS / "gpu_check.sh"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert sorted(BENCHMARKS.rglob("*.json")) == before


def test_the_file_says_what_was_measured_where(tmp_path):
    """It has the device's name, and all that is needed to read it."""
    check = script("gpu_check")
    with mock.patch.object(check, "RESULTS", tmp_path):
        path = check.write({"device": "NVIDIA H200", "rows": [1]})
    written = json.loads(path.read_text())
    assert path.name == "gpu-nvidia-h200.json"
    assert written["rows"] == [1]
    assert "numpy" in written["versions"]
