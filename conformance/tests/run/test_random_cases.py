"""Random tests: generated rules and trees, minimal failing examples, and their conversion to test vectors of spec/."""

import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from ampscale_conformance import Unsupported, Verdict
from ampscale_conformance.model.bits import arrays, map_tree
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.run import random_cases
from ampscale_conformance.run.random_cases import CLAUSES, TEMPLATES, random_results
from mutants.machine import GrowsOneStepLate
from mutants.machine_hysteresis import ResetsOverflowsAtABackoff
from mutants.machine_variants import ContinuesAtTheMinimum
from mutants.overflow import ChecksForInfinities
from mutants.plain import EVERYTHING, Plain
from mutants.scaling_numbers import UnscalesFloat16InBfloat16
from spec_vectors.compare import FOLDER
from spec_vectors.recompute import recomputed

from ampscale import LossScaleRule
from ampscale.presets import PRESETS

SEED = 5


@pytest.fixture(scope="module", autouse=True)
def same_examples_in_every_process():
    """Hypothesis prefers the constants of imported modules, which depend on the tests that ran before."""
    providers = pytest.importorskip("hypothesis.internal.conjecture.providers")
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(providers, "_get_local_constants"):
            patch.setattr(providers, "_get_local_constants", providers.Constants)
            patch.setattr(providers, "CONSTANTS_CACHE", {})
        yield


class Widening(Plain):
    """Implementation that unscales 16-bit arrays to float32, but rounds to 16 bits in between."""

    def unscale(self, handle, tree):
        narrow = super().unscale(handle, tree)
        return map_tree(lambda leaf: leaf.astype("float32") if leaf.dtype.itemsize == 2 else leaf, narrow)


@cache
def results_of(make, preset="torch", *, claims=("float16",), level=1, examples=40):
    """Return a dict from each kind of random test to its result."""
    adapter = make(preset, level, claims)
    return {result.case: result for result in random_results(adapter, SEED, level, examples=examples)}


def vector(result):
    """Return the test vector in a message, and the chapter of its file."""
    head, _, text = result.message.partition(".json:\n")
    return json.loads(text), head.rpartition("/")[2]


# --- failures ---


def test_conforming_implementations_pass():
    """Every preset with all capabilities passes, and so do arrays of every dtype. Hypothesis may find fewer examples."""
    for name in PRESETS:
        for result in results_of(Plain, name, claims=EVERYTHING, level=0, examples=2).values():
            assert result.verdict is Verdict.PASS, name
            assert result.message in (f"1 case with seed {SEED}", f"2 cases with seed {SEED}")
            assert (result.calls, result.trajectory) == ((), None)
    assert {result.verdict for result in results_of(Plain, claims=EVERYTHING, examples=10).values()} == {Verdict.PASS}


WALKS = {"random-walk", "random-tensor-walk"}
FAULTY = [
    (GrowsOneStepLate, "torch", "random-trace"),
    (ResetsOverflowsAtABackoff, "megatron", "random-trace"),
    (ContinuesAtTheMinimum, "deepspeed", "random-trace"),
    (UnscalesFloat16InBfloat16, "torch", "random-unscale"),
    (Widening, "torch", "random-unscale"),
    (ChecksForInfinities, "torch", "random-all-finite"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "preset", "kind"), FAULTY)
def test_a_bug_fails_one_kind_with_a_valid_test_vector(make, preset, kind):
    """The schema accepts the vector, its clauses exist, and the oracle computes the same values."""
    results = results_of(make, preset)
    assert {case for case, result in results.items() if result.verdict is not Verdict.PASS} - WALKS == {kind}
    assert (results[kind].verdict, results[kind].clause) == (Verdict.FAIL, CLAUSES[kind])
    assert results[kind].calls
    case, chapter = vector(results[kind])
    file, schema = (json.loads((FOLDER / f"{stem}.json").read_text("utf-8")) for stem in (chapter, "schema"))
    assert case["id"] == f"{kind}-{SEED}"
    assert case["catches"].partition(":")[0] in file["notes"]
    assert set(case["clauses"]) <= set(clauses())
    jsonschema.validate(file | {"cases": [case]}, schema)
    computed = recomputed(chapter, case)
    assert {name: case.get(name) for name in computed} == computed


def test_a_failing_trace_is_minimal():
    """The trace has the fewest steps. Values that do not affect the failure are the first values of their strategies."""
    result = results_of(GrowsOneStepLate, level=0)["random-trace"]
    assert result.message.splitlines()[:2] == [
        "after step 0 (counted from 0): expected scale 512.0 (MACHINE-growth-window), got 256.0",
        f"seed {SEED}; as a test vector for spec/vectors/machine.json:",
    ]
    case, _ = vector(result)
    assert (case["finite"], case["clauses"][0]) == ("+", "MACHINE-growth-window")
    rule = {name: float.fromhex(value) if isinstance(value, str) else value for name, value in case["rule"].items()}
    assert LossScaleRule(**rule) == PRESETS["torch"].rule(init_scale=256.0, growth_interval=1)


def test_a_failing_tree_is_minimal(monkeypatch):
    """The tree is one array with one NaN."""
    monkeypatch.setattr(random_cases, "TEMPLATES", [kind for kind in TEMPLATES if kind.id == "random-all-finite"])
    case, _ = vector(*random_results(ChecksForInfinities("torch", 1, ("float16",)), SEED))
    assert (case["tree"], case["finite"]) == ([{"dtype": "float32", "shape": [1], "bits": ["7fc00000"]}], False)


@pytest.mark.slow
def test_vectors_have_the_members_of_their_kind():
    """
    Examples are the dtype of a widened result, and the step at which the published scaler raises an error.

    That step leaves the scale unchanged.
    """
    case, _ = vector(results_of(Widening)["random-unscale"])
    assert (case["dtype"], case["output"][0]["dtype"], case["input"][0]["dtype"]) == ("float32", "float32", "float16")
    case, _ = vector(results_of(ContinuesAtTheMinimum, "deepspeed")["random-trace"])
    assert case["raises_at"] == len(case["finite"]) - 1
    assert case["scale"][-1] == case["scale"][-2]
    assert "MACHINE-would-raise" in case["clauses"]


# --- generated inputs ---


class Recording(Plain):
    """Implementation that records its arguments."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rules, self.dtypes = [], set()

    def create(self, rule, **options):
        self.rules.append(rule)
        return super().create(rule, **options)

    def record(self, tree):
        self.dtypes |= {leaf.dtype.name for leaf in arrays(tree)}
        return tree

    def scale(self, handle, tree):
        return super().scale(handle, self.record(tree))


@cache
def recorded(preset, claims, level=0):
    """Return a conforming implementation after the random tests up to this level."""
    adapter = Recording(preset, 1, claims)
    random_results(adapter, SEED, level, examples=60)
    return adapter


@pytest.mark.slow
def test_generated_rules_vary_the_parameters_of_the_preset():
    """Without the capability "rounding", factors are powers of two. apex has fixed constants."""
    rules = recorded("colossalai", ()).rules
    for name in ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "hysteresis", "min_scale", "max_scale"):
        assert len({getattr(rule, name) for rule in rules}) > 1, name
    assert {rule.growth_factor for rule in rules} == {2.0, 4.0, 8.0}
    assert len({(rule.growth_factor, rule.backoff_factor, rule.hysteresis) for rule in recorded("apex", ()).rules}) == 1


@pytest.mark.slow
def test_generated_factors_scales_and_dtypes_depend_on_capabilities():
    """With "rounding", factors may be inexact; with "division", scales need not be powers of two. Further dtypes are claimed."""
    record = recorded("colossalai", EVERYTHING, 1)
    assert record.dtypes > {"float16", "float32", "float64"}
    assert recorded("torch", (), 1).dtypes == {"float16", "float32", "float64"}
    rules = record.rules
    assert {2.0, 8.0, 1.1} < {rule.growth_factor for rule in rules} <= {2.0, 4.0, 8.0, 3.0, 1.5, 1.1}
    assert {rule.init_scale for rule in rules} >= {513.5, 4096.0078125}


def test_inapplicable_kinds_are_unsupported():
    """Kinds above the given level are omitted; those above the claimed level, or without a valid rule, are unsupported."""
    level_0 = ["random-trace", "random-walk"]
    assert [result.case for result in random_results(Plain("torch", 1, ()), SEED, 0, examples=1)] == level_0
    results = {result.case: result for result in random_results(Plain("torch", 0, ()), SEED, examples=1)}
    assert [result.verdict for result in results.values()] == ["pass"] * 2 + ["unsupported"] * 8
    assert results["random-scale"].message == "claims level 0; requires level 1"

    class RejectsRules(Plain):
        def create(self, rule, **options):
            raise Unsupported("it takes no constants")

    result, _ = random_results(RejectsRules("torch", 0, ()), SEED, 0, examples=5)
    assert (result.verdict, result.message) == (Verdict.UNSUPPORTED, "it takes no constants")


# --- seeds ---


@pytest.mark.slow
def test_a_seed_determines_all_results(tmp_path):
    """Another process gives the same results and leaves no files. Another seed gives other rules."""
    script = f"""
import sys
from mutants.machine import GrowsOneStepLate
from ampscale_conformance.run.random_cases import random_results
adapter = GrowsOneStepLate("torch", 1, ["float16"])
sys.stdout.write("".join(result.message for result in random_results(adapter, {SEED}, 1, examples=40)))
"""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout == "".join(result.message for result in results_of(GrowsOneStepLate).values())
    assert list(tmp_path.iterdir()) == []
    adapter = Recording("torch", 0, ())
    random_results(adapter, SEED + 1, 0, examples=10)
    assert adapter.rules != recorded("torch", (), 1).rules[: len(adapter.rules)]


# --- errors, timeouts and unstable results ---


def test_the_trace_of_an_error_is_minimal():
    """The trace is a single overflow."""

    class Fragile(Plain):
        def overflow_step(self, handle):
            raise ArithmeticError("no overflow is supported")

    result, _ = random_results(Fragile("torch", 0, ()), SEED, 0)
    assert (result.verdict, vector(result)[0]["finite"]) == (Verdict.ERROR, "-")
    assert result.message.startswith("update raised ArithmeticError: no overflow is supported\n")


def test_a_hang_ends_the_search():
    """The hanging example is not repeated."""
    hangs = []

    class Hanging(Plain):
        def overflow_step(self, handle):
            hangs.append(handle)
            while True:
                time.sleep(0.005)

    result, _ = random_results(Hanging("torch", 0, ()), SEED, 0, seconds=0.1, examples=20)
    assert result.verdict is Verdict.TIMEOUT
    assert len(hangs) == 2  # one for each kind of level 0
    assert "-" in vector(result)[0]["finite"]


def test_an_unstable_result_is_a_failure():
    """The message contains a note that the failure is not reproducible."""
    answers = iter([False])

    class Unstable(Plain):
        def window(self, handle):
            return super().window(handle) + (not next(answers, True))

    result, _ = random_results(Unstable("torch", 0, ()), SEED, 0, examples=20)
    assert result.verdict is Verdict.FAIL
    assert "; not reproducible: the same case gave another result when repeated\n" in result.message
