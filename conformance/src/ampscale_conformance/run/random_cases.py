"""
Random test generation with Hypothesis: draws cases as the suite does, with other choices, and shrinks those that fail.

The seed, the version of Hypothesis and the constants in the user's modules, such as the adapter, determine the cases. The failure
of a single trace or tree is also reported as a test vector that can be added to spec/vectors, where it depends on none of these.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ampscale import LossScaleRule

from ..cases.backends import draw_on_arrays
from ..cases.calls_drawn import draw_calls
from ..cases.machine_drawn import WITH_TENSORS, draw_trace, draw_walk
from ..cases.overflow_drawn import draw_check
from ..cases.replicas import draw_replicas
from ..cases.scaling_drawn import draw_arithmetic
from ..cases.step_drawn import draw_training
from ..cases.trees_drawn import ANY, LARGE, SHAPES
from ..model.adapter import Adapter, ImplementationInfo, level_of
from ..model.bits import DIGITS, arrays, map_tree, tree_from_json, tree_to_json
from ..model.case import Case
from ..model.clauses import spec_folder
from ..model.draw import DrawnCase, Pick
from ..model.floats import rounded
from ..model.verdicts import Result, Verdict
from ..oracle import tensors
from ..oracle.machine import trajectory
from .check import SECONDS, run

EXAMPLES = 100
WIDE: dict[str, Any] = {"layouts": ANY, "shapes": (*SHAPES * 5, *LARGE)}


class Template(NamedTuple):
    """Kind of drawn case, and the clause that it checks."""

    id: str
    clause: str
    level: int
    draw: Callable[[Pick, ImplementationInfo], DrawnCase]
    needs: frozenset[str] = frozenset()


TEMPLATES = (
    Template("random-trace", "MACHINE-next-step", 0, draw_trace),
    Template("random-walk", "MACHINE-pure", 0, draw_walk),
    Template("random-tensor-walk", "MACHINE-next-step", 1, partial(draw_walk, kinds=WITH_TENSORS)),
    Template("random-scale", "SCALING-scale", 1, partial(draw_arithmetic, methods=["scale"], **WIDE)),
    Template("random-unscale", "SCALING-unscale-divides", 1, partial(draw_arithmetic, methods=["unscale"], **WIDE)),
    Template("random-all-finite", "OVERFLOW-all-finite", 1, partial(draw_check, **WIDE)),
    Template("random-calls", "CALLS-every-sequence", 2, draw_calls),
    Template("random-training", "STEP-every-sequence", 3, draw_training),
    Template("random-replicas", "REPLICAS-same-scale", 4, draw_replicas, frozenset({"replicas"})),
    Template("random-steps-on-arrays", "BACKENDS-same-run", 4, draw_on_arrays, frozenset({"stays-on-device"})),
)
CLAUSES = {template.id: template.clause for template in TEMPLATES}


def random_results(
    adapter: Adapter, seed: int, level: int | None = None, *, seconds: float = SECONDS, examples: int = EXAMPLES
) -> list[Result]:
    """Return a result for each template up to the level: pass, unsupported, or the smallest failure, as a vector if possible."""
    templates = [template for template in TEMPLATES if level is None or template.level <= level_of(level)]
    return [_Search(template, adapter, seed, seconds).result(examples) for template in templates]


class _Search:
    """Search for a failing case of one template."""

    def __init__(self, template: Template, adapter: Adapter, seed: int, seconds: float) -> None:
        self.template, self.adapter, self.seed, self.seconds = template, adapter, seed, seconds
        self.passed, self.duration = 0, 0.0
        self.last: Result | None = None
        self.failure: tuple[Result, DrawnCase] | None = None  # the last one; other cases are not kept, since they can be large

    def result(self, examples: int) -> Result:
        """Run the drawn cases and return one result for all of them."""
        flaky = self._search(examples)
        if self.failure is None:
            assert self.last is not None
            message = f"{self.passed} {'case' if self.passed == 1 else 'cases'} with seed {self.seed}"
            summary = replace(self.last, verdict=Verdict.PASS, message=message) if self.passed else self.last
            return replace(summary, calls=(), trajectory=None, seconds=self.duration)
        last, case = self.failure
        message = f"{last.message}{flaky}\nseed {self.seed}"
        if case.inputs:  # a single trace or tree
            message += f"; as a test vector for spec/vectors/{case.chapter}.json:\n"
            message += vector(f"{self.template.id}-{self.seed}", case, last)
        return replace(last, message=message, seconds=self.duration)

    def _search(self, examples: int) -> str:
        """Draw and shrink cases. Return a note if the same case gave different results."""
        from hypothesis import Phase, Verbosity, errors, find, settings
        from hypothesis.configuration import set_hypothesis_home_dir
        from hypothesis.strategies import composite, sampled_from

        @composite
        def cases(draw: Callable[[Any], Any]) -> DrawnCase:
            return self.template.draw(lambda values: draw(sampled_from(values)), self.adapter.info)

        configured = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate, Phase.shrink],
            print_blob=False,
            verbosity=Verbosity.quiet,
        )
        with TemporaryDirectory() as folder:
            set_hypothesis_home_dir(folder)  # so that Hypothesis leaves no files in the current directory
            try:
                with suppress(errors.NoSuchExample):
                    find(cases(), self._fails, settings=configured, random=Random(self.seed))
            except errors.Flaky:
                return "; not reproducible: the same case gave another result when repeated"
            finally:
                set_hypothesis_home_dir(None)
        return ""

    def _fails(self, drawn: DrawnCase) -> bool:
        """Run a case; return True for a verdict that is worth shrinking."""
        if self.last is not None and self.last.verdict in (Verdict.TIMEOUT, Verdict.CRASH, Verdict.PROTOCOL_ERROR):
            return False  # do not shrink these: each attempt could take the full time limit again
        template = self.template
        catches = "random case: a combination that no other case checks"
        case = Case(template.id, template.clause, template.level, catches, drawn.run, template.needs)
        self.last = result = run(case, self.adapter, self.seconds)
        self.duration += result.seconds
        self.passed += result.verdict is Verdict.PASS
        if result.verdict not in (Verdict.PASS, Verdict.UNSUPPORTED):
            self.failure = result, drawn
        return result.verdict in (Verdict.FAIL, Verdict.ERROR)


def vector(id: str, case: DrawnCase, result: Result) -> str:
    """Return a failing case as a test vector in JSON, one member per line. The case must have inputs."""
    members = VECTORS[case.chapter](case.inputs, result)
    catches = f"{_bug(case.chapter, members['clauses'][0])}: {' '.join(result.message.split())}"
    members = {"id": id, "clauses": members.pop("clauses"), "catches": catches, **members}
    text = ",\n".join(f"      {json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
    return f"    {{\n{text}\n    }}"


def _bug(chapter: str, clause: str) -> str:
    """Return the bug of the first test vector of this clause; without one, the first bug of the chapter."""
    vectors = json.loads((spec_folder() / "vectors" / f"{chapter}.json").read_text("utf-8"))
    names = [case["catches"].partition(":")[0] for case in vectors["cases"] if clause in case["clauses"]]
    return str(names[0] if names else next(iter(vectors["notes"])))


def _trace_members(inputs: Mapping[str, Any], result: Result) -> dict[str, Any]:
    rule = LossScaleRule.from_json(json.dumps(result.calls[0].arguments[0]))  # the argument of create
    points = trajectory(rule, [sign == "+" for sign in inputs["finite"]])
    actual = result.trajectory.got if result.trajectory else []
    differing = (point for scale, point in zip(actual, points, strict=False) if rounded(scale, rule.dtype) != point.scale)
    members = {
        "clauses": list(next(differing, points[-1]).clauses),
        "kind": "trace",
        "rule": dict(_rule_members(rule)),
        "finite": inputs["finite"][: len(points) - 1],
        "scale": [point.scale.hex() for point in points],
    }
    return members | {"raises_at": len(points) - 2} if points[-1].stopped else members


def _rule_members(rule: LossScaleRule) -> Iterator[tuple[str, Any]]:
    """Yield the rule's fields that differ from the defaults, and four that every test vector has."""
    defaults = asdict(LossScaleRule())
    for name, value in asdict(rule).items():
        if value != defaults[name] or name in ("init_scale", "growth_factor", "backoff_factor", "growth_interval"):
            yield name, float(value).hex() if isinstance(defaults[name], float) or isinstance(value, float) else value


def _arithmetic_members(inputs: Mapping[str, Any], result: Result) -> dict[str, Any]:
    method, scale, tree = inputs["method"], inputs["scale"], inputs["tree"]
    dtype = "float32" if method == "unscale" and _widens(result, tree) else None
    output = map_tree(lambda leaf: getattr(tensors, method)(leaf, scale, dtype), tree)
    clause = "SCALING-scale" if method == "scale" else "SCALING-unscale-divides"
    members: dict[str, Any] = {"clauses": [clause], "kind": method, "scale": scale.hex()}
    if [leaf.dtype for leaf in arrays(output)] != [leaf.dtype for leaf in arrays(tree)]:
        members["dtype"] = "float32"
    return members | {"input": tree_to_json(tree), "output": tree_to_json(output)}


def _widens(result: Result, tree: Any) -> bool:
    """Return True if a 16-bit array was returned in float32."""
    got = arrays(tree_from_json(result.calls[-1].result))
    return any(DIGITS[old.dtype] == 4 and new.dtype == "float32" for old, new in zip(arrays(tree), got, strict=False))


def _check_members(inputs: Mapping[str, Any], _: Result) -> dict[str, Any]:
    finite = tensors.all_finite(inputs["tree"])
    return {"clauses": ["OVERFLOW-all-finite"], "kind": "all_finite", "tree": tree_to_json(inputs["tree"]), "finite": finite}


VECTORS = {"machine": _trace_members, "scaling": _arithmetic_members, "overflow": _check_members}
