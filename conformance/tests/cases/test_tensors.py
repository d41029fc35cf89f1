"""Cases of level 1: conforming implementations fail none, results may differ by the allowed amount only, and tables are sound."""

import numpy as np
import pytest

pytest.importorskip("jax", reason="needs JAX")

import jax
from ampscale_conformance import Verdict, check
from ampscale_conformance.cases import overflow, scaling
from ampscale_conformance.model.bits import arrays
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.oracle import tensors
from ampscale_conformance.run.check import run
from cases import conforming_tensors
from cases.conforming_tensors import STYLES, Core, Jax, Reciprocal

from ampscale.presets import PRESETS

CASES = scaling.CASES + overflow.CASES
WITH_METHOD = [case for case in CASES if "method" in getattr(case.run, "keywords", {})]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns about the overflows of the cases


def find_case(id):
    """Return the case with this id."""
    return next(case for case in CASES if case.id == id)


def outcome(adapter, id):
    """Return the verdict and the message of one case."""
    result = run(find_case(id), adapter)
    return result.verdict, result.message


# --- conforming implementations ---


def unpassed(results, *allowed):
    """Return the cases that neither passed nor have one of these verdicts, with their messages."""
    return [(result.case, result.message) for result in results if result.verdict not in (Verdict.PASS, *allowed)]


@pytest.mark.slow
def test_conforming_styles_fail_no_case():
    """`Core` passes every case; the others skip only cases of capabilities that they do not claim."""
    for style in STYLES:
        results = check(style(), cases=CASES).results
        assert unpassed(results, Verdict.UNSUPPORTED) == [], style
        assert all(message.startswith("does not claim") for _, message in unpassed(results)), style
        assert len(unpassed(results)) <= (0 if style is Core else 14), style


@pytest.mark.slow
def test_cases_of_a_missing_dtype_are_unsupported():
    """Without enable_x64, JAX creates float32 arrays instead of float64. At most 14 cases do not pass."""
    with jax.enable_x64(False):
        results = check(Jax(), cases=CASES).results
    assert unpassed(results, Verdict.UNSUPPORTED) == []
    assert ("the-largest-float64-is-finite", "jax creates float32 instead of float64") in unpassed(results)
    assert len(unpassed(results)) <= 14


@pytest.mark.slow
def test_conforming_presets_fail_no_case():
    """Cases whose constants a preset does not have are unsupported. At least 25 cases pass."""
    for preset in PRESETS:
        results = check(Core(preset), cases=scaling.CASES).results
        unsupported = [result for result in results if result.verdict is not Verdict.PASS]
        assert {result.verdict for result in unsupported} <= {Verdict.UNSUPPORTED}, preset
        assert all(
            result.message.startswith((f"{preset} has no", f"{preset} does not allow these settings")) for result in unsupported
        )
        assert len(results) - len(unsupported) >= 25, preset


# --- tolerances ---


class OffByUlps(Core):
    """Implementation whose quotients exceed the exact quotients by some units in the last place."""

    def __init__(self, ulps):
        super().__init__()
        self.ulps = ulps

    def quotient(self, leaf, scale):
        exact = np.asarray(super().quotient(leaf, scale))
        return (exact.view(f"u{exact.itemsize}") + exact.dtype.type(self.ulps).astype(f"u{exact.itemsize}")).view(exact.dtype)


def test_a_quotient_may_differ_by_one_ulp():
    """Two ulps always fail. One ulp passes if the scale is not a power of two and the case does not require "division"."""
    expected = {
        "unscales-by-1001-and-a-half": ["pass", "pass", "fail"],
        "divides-float16-by-3": ["pass", "fail", "fail"],
        "unscales-float32-in-float32": ["pass", "fail", "fail"],
    }
    assert {id: [outcome(OffByUlps(ulps), id)[0] for ulps in (0, 1, 2)] for id in expected} == expected


def test_a_reciprocal_fails_only_with_the_capability_division():
    """Without this capability, the case is unsupported."""

    class ClaimsDivision(Reciprocal):
        capabilities = Core.capabilities

    assert outcome(Reciprocal(), "divides-float64-by-3") == (Verdict.UNSUPPORTED, "does not claim division")
    verdict, message = outcome(ClaimsDivision(), "divides-float64-by-3")
    assert verdict is Verdict.FAIL
    assert message.startswith("unscale at 3.0: element 0: expected 0.3333333333333333 (3fd5555555555555), got 0.33333334")


def test_only_16_bit_arrays_may_be_widened_to_float32():
    """float16 may become float32, with float32 precision, but not float64; float32 must not become float16."""

    class Casts(Core):
        def __init__(self, dtype):
            super().__init__()
            self.dtype = dtype

        def quotient(self, leaf, scale):
            return (leaf.astype(np.float32) / np.float32(scale)).astype(self.dtype)

    underflow = [outcome(Casts(dtype), "unscale-rounds-an-underflow-to-even")[0] for dtype in ("float16", "float32", "float64")]
    assert underflow == ["pass", "pass", "fail"]
    message = "unscale at 1024.0[1]: expected float32, got float16"
    assert outcome(Casts("float16"), "unscales-several-dtypes") == (Verdict.FAIL, message)


def test_scale_in_place_must_return_none():
    """None means that the argument is the result; if a tree is returned, the argument must be unchanged."""

    class InPlace(Core):
        returned, capabilities = False, conforming_tensors.InPlace.capabilities

        def scale(self, handle, tree):
            self.map_leaves(lambda leaf: np.copyto(leaf, self.product(leaf, self.read_scale(handle))), tree)
            return tree if self.returned else None

    class Returning(InPlace):
        returned = True

    assert check(InPlace(), cases=CASES).ok
    verdict, message = outcome(Returning(), "arguments-and-results-stay")
    assert verdict is Verdict.FAIL
    assert ": the input of scale[" in message


def test_a_result_of_the_wrong_type_or_structure_fails():
    """Such a result is not an error of the suite, and the truth value of a flag is not used."""
    trees = [None, {}, [1.0], [[np.ones(2, "f4")]], [np.ones(3, "f4")], [np.ones(2, "i4")], [np.array([6, -12, 0], "f4")], 0.5]
    for method, id, answers in (
        ("unscale", "unscales-float32-in-float32", trees),
        ("all_finite", "the-answer-is-one-bool", [1, None, "True", np.ones(1, bool), np.float32(1)]),
    ):
        for answer in answers:
            adapter = Core()
            setattr(adapter, method, lambda *_, answer=answer: answer)
            assert outcome(adapter, id)[0] is Verdict.FAIL, answer


# --- the tables ---


def test_cases_are_of_level_1_and_of_their_chapter():
    """The tables have 63 cases, all of clauses that are required."""
    assert len(CASES) == 63
    for chapter, cases in (("scaling", scaling.CASES), ("overflow", overflow.CASES)):
        assert {(case.level, case.chapter, clauses()[case.clause].level) for case in cases} == {(1, chapter, "must")}


def test_no_case_computes_with_float32_subnormals():
    """Compiled code may flush subnormals to zero."""
    for case in WITH_METHOD:
        compute = getattr(tensors, case.run.keywords["method"])
        for leaf in arrays(case.run.keywords["tree"]):
            if leaf.dtype in ("float32", "bfloat16"):
                for array in (leaf, compute(leaf, case.run.keywords["scale"])):
                    assert not any(0 < abs(number) < 2.0**-126 for number in tensors.numbers(array))


def test_each_run_of_a_case_gets_new_arrays():
    """An implementation that overwrites its arguments passes a case twice; it fails a case that also compares the arguments."""

    class Overwrites(Core):
        capabilities = conforming_tensors.InPlace.capabilities

        def all_finite(self, tree):
            answer = super().all_finite(tree)
            self.map_leaves(lambda leaf: leaf.fill(1), tree)
            return answer

    for _ in range(2):
        assert outcome(Overwrites(), "finds-overflows-everywhere")[0] is Verdict.PASS
        assert outcome(Overwrites(), "checks-drawn-trees")[0] is Verdict.FAIL
