"""The cases of level 1: nobody who is right is accused, what is allowed is allowed and no more, and the tables are sound."""

import math

import jax
import numpy as np
import pytest
from ampscale_conformance import Verdict, check
from ampscale_conformance.cases import overflow, scaling
from ampscale_conformance.model.bits import leaves
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.supported_rules import SMALL
from ampscale_conformance.oracle import tensors
from ampscale_conformance.run.check import run
from cases.conforming_tensors import STYLES, Core, Jax, Reciprocal

import ampscale
from ampscale.presets import PRESETS

CASES = scaling.CASES + overflow.CASES
FIXED = [case for case in CASES if "tree" in getattr(case.run, "keywords", {})]
ASKED = [case for case in CASES if "trees" in getattr(case.run, "keywords", {})]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the overflows that are asked for


def of(id):
    """The case of this name."""
    return next(case for case in CASES if case.id == id)


def came(adapter, id):
    """The verdict of one case and its message."""
    result = run(of(id), adapter)
    return result.verdict, result.message


# --- nobody who is right is accused ---


def others(results, *allowed):
    """What is neither passed nor among these verdicts."""
    return [(result.case, result.message) for result in results if result.verdict not in (Verdict.PASS, *allowed)]


def test_no_style_is_accused():
    """In place or not, wide or narrow: nothing is held against whoever is right, and the core is asked all."""
    for style in STYLES:
        results = check(style(), cases=CASES).results
        assert others(results, Verdict.UNSUPPORTED) == [], style
        assert all(message.startswith("does not claim") for _, message in others(results)), style
        assert len(others(results)) <= (0 if style is Core else 14), style


def test_a_library_without_a_dtype_is_not_accused():
    """JAX makes float32 of float64 unless it is told otherwise: those cases are unsupported, and the others are passed."""
    with jax.enable_x64(False):
        results = check(Jax(), cases=CASES).results
    assert others(results, Verdict.UNSUPPORTED) == []
    assert ("finds-nan-in-float64", "jax creates float32 instead of float64") in others(results)
    assert len(others(results)) <= 14


def test_no_preset_is_accused():
    """Cases that cannot be asked under a preset's constants are unsupported."""
    for preset in PRESETS:
        results = check(Core(preset), cases=scaling.CASES).results
        unsupported = [result for result in results if result.verdict is not Verdict.PASS]
        assert {result.verdict for result in unsupported} <= {Verdict.UNSUPPORTED}, preset
        assert all(
            result.message.startswith((f"{preset} has no", f"{preset} does not allow these settings")) for result in unsupported
        )
        assert len(results) - len(unsupported) >= 25, preset


def test_a_scale_that_cannot_be_asked_is_left_alone():
    """One that never moves, as of a rule whose factors are 1; and one that cannot be divided by, which is level 0's matter."""
    still = ampscale.LossScaleRule(growth_factor=1.0, backoff_factor=1.0)
    assert came(Core(still), "scale-follows-a-growth") == (Verdict.UNSUPPORTED, "the rule has no growth_interval to set")
    halves = ampscale.LossScaleRule(growth_factor=1.0)
    assert came(Core(halves), "scale-follows-a-growth") == (Verdict.UNSUPPORTED, "its scale does not change")
    assert came(Core(halves), "scale-follows-a-backoff")[0] is Verdict.PASS
    for scale in (math.inf, math.nan, 0.0, -1.0, 1e39):
        lost = Core()
        lost.read_scale = lambda _, scale=scale: scale
        assert came(lost, "unscale-follows-a-growth") == (Verdict.UNSUPPORTED, f"its scale is {scale!r}")


# --- what is allowed, and no more ---


class Off(Core):
    """Quotients that lie some units in the last place above the right ones."""

    def __init__(self, ulps):
        super().__init__()
        self.ulps = ulps

    def quotient(self, leaf, scale):
        right = np.asarray(super().quotient(leaf, scale))
        return (right.view(f"u{right.itemsize}") + right.dtype.type(self.ulps).astype(f"u{right.itemsize}")).view(right.dtype)


def test_one_unit_is_allowed_where_a_reciprocal_is():
    """By a scale that is no power of two, and without "division"; two are too many, and one is by powers of two or with it."""
    wanted = {
        "unscales-by-1001-and-a-half": ["pass", "pass", "fail"],
        "unscale-follows-a-growth": ["pass", "pass", "fail"],
        "divides-float32-by-3": ["pass", "fail", "fail"],
        "divides-float16-by-3": ["pass", "fail", "fail"],
        "unscales-float32-in-float32": ["pass", "fail", "fail"],
        "unscales-every-tree": ["pass", "fail", "fail"],
    }
    assert {id: [came(Off(ulps), id)[0] for ulps in (0, 1, 2)] for id in wanted} == wanted


def test_a_reciprocal_is_seen_with_division():
    """As of a scaler that multiplies: not asked of it, and found if it claims to divide."""

    class Claims(Reciprocal):
        claims = Core.claims

    assert came(Reciprocal(), "divides-float32-by-3") == (Verdict.UNSUPPORTED, "does not claim division")
    verdict, message = came(Claims(), "divides-float32-by-3")
    assert verdict is Verdict.FAIL
    assert (
        message
        == "unscale at 3.0[0]: element 0: expected 1.6666666269302368 (3fd55555), got 1.6666667461395264 (3fd55556) in float32"
    )


def test_only_what_is_narrow_may_become_wide():
    """Half may come back as single, with the digits that float32 has, and as nothing else."""

    class Casts(Core):
        def __init__(self, dtype):
            super().__init__()
            self.dtype = dtype

        def quotient(self, leaf, scale):
            return (leaf.astype(np.float32) / np.float32(scale)).astype(self.dtype)

    underflow = [came(Casts(dtype), "unscale-rounds-an-underflow-to-even")[0] for dtype in ("float16", "float32", "float64")]
    assert underflow == ["pass", "pass", "fail"]
    message = "unscale at 1024.0[1]: expected float32, got float16"
    assert came(Casts("float16"), "unscales-several-dtypes") == (Verdict.FAIL, message)


def test_a_loss_may_be_scaled_where_it_lies_if_nothing_is_returned():
    """None says that the given tree is the result; whoever returns it has changed the loss behind one's back."""

    class InPlace(Core):
        returned = False

        def scale(self, handle, tree):
            self.mapped(lambda leaf: np.copyto(leaf, self.product(leaf, self.read_scale(handle))), tree)
            return tree if self.returned else None

    class Returning(InPlace):
        returned = True

    assert check(InPlace(), cases=CASES).ok
    verdict, message = came(Returning(), "scale-leaves-its-input-alone")
    assert verdict is Verdict.FAIL
    assert message.startswith("the input of scale[0]: element 0: expected 1.5 (3fc00000), got")


def test_what_is_no_such_tree_or_no_bool_is_a_failure():
    """And not an error of the suite; a flag is not taken for its truth."""
    trees = [None, {}, [1.0], [[np.ones(2, "f4")]], [np.ones(3, "f4")], [np.ones(2, "i4")], [np.array([6, -12, 0], "f4")], 0.5]
    for method, id, answers in (
        ("unscale", "unscales-by-less-than-1", trees),
        ("all_finite", "the-answer-is-one-bool", [1, None, "True", np.ones(1, bool), np.float32(1)]),
    ):
        for answer in answers:
            adapter = Core()
            setattr(adapter, method, lambda *_, answer=answer: answer)
            assert came(adapter, id)[0] is Verdict.FAIL, answer


# --- the tables ---


def test_the_tables_are_in_order():
    """Ids are unique; each case is of level 1 and of a clause of its chapter; each fault has a name and says what it does."""
    assert len({case.id for case in CASES}) == len(CASES) == 101
    for chapter, cases in (("scaling", scaling.CASES), ("overflow", overflow.CASES)):
        for case in cases:
            assert (case.level, case.chapter) == (1, chapter)
            assert clauses()[case.clause].level == "must"
            assert case.catches.partition(": ")[2], case.id


def test_the_capabilities_are_asked_for():
    """A case whose tree has what a capability is for needs it, and no other case does."""
    held = {"bfloat16": ("bfloat16",), "complex": ("complex64", "complex128"), "integers": ("int32", "int64", "bool")}
    for case in FIXED + ASKED:
        given = case.run.keywords.get("trees", (case.run.keywords.get("tree"),))
        found = [leaf for tree in given for _, leaf in leaves(tree)]
        needed = {name for name, dtypes in held.items() if any(leaf is not None and leaf.dtype in dtypes for leaf in found)}
        needed |= {"none"} if None in found else set()
        needed |= {"empty"} if any(leaf is not None for leaf in found) is False and None not in found else set()
        assert case.needs - {"division"} == needed, case.id


def test_what_is_wanted_is_what_the_oracle_says():
    """Of the last tree."""
    for case in ASKED:
        assert tensors.all_finite(case.run.keywords["trees"][-1]) is case.run.keywords["expected"], case.id


def test_no_subnormal_of_float32_is_computed_with():
    """Compiled code may flush them, and is not wrong: no input and no result of these cases is one."""
    for case in FIXED:
        compute = getattr(tensors, case.run.keywords["method"])
        for _, leaf in leaves(case.run.keywords["tree"]):
            if leaf is not None and leaf.dtype in ("float32", "bfloat16"):
                for array in (leaf, compute(leaf, case.run.keywords.get("scale", SMALL))):
                    assert all(abs(number) >= 2.0**-126 for number in tensors.numbers(array) if number == number and number != 0)


def test_arrays_are_made_anew_for_every_case():
    """A case that is asked a second time asks the same, also of one who writes to what it was given."""

    class Spoils(Core):
        def all_finite(self, tree):
            answer = super().all_finite(tree)
            self.mapped(lambda leaf: leaf.fill(1), tree)
            return answer

    for _ in range(2):
        assert came(Spoils(), "finds-nan")[0] is Verdict.PASS
        assert came(Spoils(), "all-finite-leaves-its-input-alone")[0] is Verdict.FAIL
