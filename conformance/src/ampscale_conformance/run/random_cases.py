"""
Cases drawn by chance, on request: Hypothesis draws what the claim allows, and makes what fails as small as it can.

The same seed gives the same cases, with the same version of Hypothesis. What is found is shown as a vector that can be pasted
into spec/vectors, and is a case from then on that hangs on no chance.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ..model.adapter import Adapter, ImplementationInfo, level_of
from ..model.case import Case
from ..model.verdicts import Result, Verdict
from .check import SECONDS, run
from .random_draws import Draw, Drawn, drawn_check, drawn_numbers, drawn_trace
from .random_vectors import vector

EXAMPLES = 100


class Kind(NamedTuple):
    """What is drawn, and the clause that it holds against."""

    id: str
    clause: str
    level: int
    draw: Callable[[Draw, ImplementationInfo], Drawn]


KINDS = (
    Kind("random-trace", "MACHINE-next-step", 0, drawn_trace),
    Kind("random-scale", "SCALING-scale", 1, partial(drawn_numbers, method="scale")),
    Kind("random-unscale", "SCALING-unscale-divides", 1, partial(drawn_numbers, method="unscale")),
    Kind("random-all-finite", "OVERFLOW-all-finite", 1, drawn_check),
)
CLAUSES = {kind.id: kind.clause for kind in KINDS}


def random_results(
    adapter: Adapter, seed: int, level: int | None = None, *, seconds: float = SECONDS, examples: int = EXAMPLES
) -> list[Result]:
    """
    A result for each of `KINDS`: a failure with the smallest case that was found and its vector.

    Args:
        adapter: The implementation.
        seed: What the cases are drawn from; any int.
        level: Kinds above this level are left out.
        seconds: How long one drawn case may take.
        examples: How many cases of a kind are drawn.
    """
    kinds = [kind for kind in KINDS if level is None or kind.level <= level_of(level)]
    return [_Search(kind, adapter, seed, seconds).result(examples) for kind in kinds]


class _Found(Exception):  # noqa: N818 - how Hypothesis is told
    pass


class _Search:
    """One kind of case, and what came of those that were drawn."""

    def __init__(self, kind: Kind, adapter: Adapter, seed: int, seconds: float) -> None:
        self.kind, self.adapter, self.seed, self.seconds = kind, adapter, seed, seconds
        self.came: list[tuple[Result, Drawn]] = []

    def result(self, examples: int) -> Result:
        """What came of all of them."""
        flaky = self._search(examples)
        last, drawn = self.came[-1]
        spent = sum(result.seconds for result, _ in self.came)
        bad = [(result, each) for result, each in self.came if result.verdict not in (Verdict.PASS, Verdict.UNSUPPORTED)]
        if not bad:
            passed = sum(result.verdict is Verdict.PASS for result, _ in self.came)
            made = replace(last, verdict=Verdict.PASS, message=f"{passed} cases with seed {self.seed}") if passed else last
            return replace(made, calls=(), trajectory=None, seconds=spent)
        last, drawn = bad[-1]
        said = f"{last.message}{flaky}\nseed {self.seed}; as a case of spec/vectors/{drawn.chapter}.json:\n"
        return replace(last, message=said + vector(f"{self.kind.id}-{self.seed}", drawn, last), seconds=spent)

    def _search(self, examples: int) -> str:
        """Draws and shrinks. Says so where the same case went in two ways."""
        from hypothesis import HealthCheck, Phase, Verbosity, errors, given, seed, settings
        from hypothesis.configuration import set_hypothesis_home_dir
        from hypothesis.strategies import composite

        @composite
        def cases(draw: Draw) -> Drawn:
            return self.kind.draw(draw, self.adapter.info)

        chosen = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
        )
        with TemporaryDirectory() as folder:
            set_hypothesis_home_dir(folder)  # nothing is left where the command was run
            try:
                chosen(seed(self.seed)(given(cases())(self._put)))()
            except _Found:
                return ""
            except errors.Flaky:
                return "; and when it was asked again, it did something else"
            finally:
                set_hypothesis_home_dir(None)
        return ""

    def _put(self, drawn: Drawn) -> None:
        if self.came and self.came[-1][0].verdict in (Verdict.TIMEOUT, Verdict.CRASH, Verdict.PROTOCOL_ERROR):
            return  # these are not made smaller: each attempt could take as long again
        case = Case(self.kind.id, self.kind.clause, self.kind.level, "by chance: a case that nobody thought of", drawn.ask)
        result = run(case, self.adapter, self.seconds)
        self.came.append((result, drawn))
        if result.verdict in (Verdict.FAIL, Verdict.ERROR):
            raise _Found
