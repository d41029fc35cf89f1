"""Check all proofs, and write docs/proofs.md; exit with an error if one of them fails, or if the page has changed."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ampscale import presets

from . import mutants, page, prove, reach, refute

PAGE = Path(__file__).parents[2] / "docs" / "proofs.md"


def main() -> int:
    """Check all proofs, update docs/proofs.md, and return the exit status."""
    problems: list[str] = []
    theorems = _theorems(problems)
    explored, counts = _explored(problems)
    disproofs = [refute.refute(claim) for claim in refute.CLAIMS]
    exact, errors = _resumed()
    counts["mutants"] = len(mutants.STEPS)
    text = page.theorems(theorems) + page.disproofs(disproofs) + page.reached(explored)
    text += page.resumed(exact, len(reach.FURTHER), errors)
    for name, value in counts.items():
        text = text.replace(f"{{{name}}}", str(value))
    print(f"{len(theorems)} theorems, {counts['states']} states, {len(problems)} problems, {time.process_time():.0f} seconds")
    print("".join(f"{problem}\n" for problem in problems), end="")
    changed = not problems and PAGE.read_text("utf-8") != text
    if changed:
        PAGE.write_text(text, encoding="utf-8")
        print(f"{PAGE.name} has changed")
    return bool(problems) or changed


def _theorems(problems: list[str]) -> list[tuple[str, str, int]]:
    """
    Return the text and clause of every theorem, and the number of mutants that break it.

    Add to *problems* each theorem that is not proven or that no mutant breaks, and each mutant that breaks none.
    """
    problems += [f"not proven: {text}" for text, _, search in prove.claims() if _is_false(text, search)]
    broken = Counter[str]()
    for claims in [*map(prove.claims, mutants.STEPS), prove.claims(product=mutants.unlimited_shift)]:
        failing = [text for text, _, search in claims if _is_false(text, search)]
        broken.update(failing)
        if not failing:
            problems.append("a mutant breaks no theorem")
    rows = [(text, clause, broken[text]) for text, clause, _ in prove.claims()]
    problems += [f"no mutant breaks: {text}" for text, _, count in rows if not count]
    return rows


def _is_false(text: str, search: Callable[[], object]) -> bool:
    """Return True if there is a counterexample to a theorem; if z3 does not decide, raise a TimeoutError with its text."""
    try:
        return search() is not None
    except TimeoutError as error:
        raise TimeoutError(f"{text}: {error}") from None


def _explored(problems: list[str]) -> tuple[list[page.Reached], Counter[str]]:
    """Return the row of every preset, and the numbers of states, rules and steps; add wrong comparisons to *problems*."""
    rows = []
    counts = Counter[str](differing=0, presets=len(presets.PRESETS))
    for name in presets.PRESETS:
        explored = [reach.explore(rule) for rule in reach.settings(name)]
        states = sum(len(result.graph.edges) for result in explored)
        rows.append(reach.row(name, explored))
        counts.update(states=states, rules=len(explored))
        exact = [result for result in explored if reach.exact(result.rule)]
        counts.update(steps=sum(2 * len(result.graph.edges) for result in exact), differing=sum(map(reach.differing, exact)))
    if counts["differing"]:
        problems.append(f"the encoding differs from the library in {counts['differing']} steps")
    further = [reach.explore(rule) for rule in reach.FURTHER]
    problems += [f"the encoding differs from the library for {result.rule}" for result in further if reach.differing(result)]
    equal = [step.__name__ for step in mutants.STEPS if not any(reach.differing(result, step) for result in further)]
    problems += [f"{name} does not differ from the library" for name in equal]
    return rows, counts


def _resumed() -> tuple[int, dict[str, int]]:
    """Return the number of restored states, and the numbers of rejected states by their error."""
    total = 0
    errors = Counter[str]()
    rules = [[rule for rule in reach.settings(name, 3) if rule.hysteresis <= 2][-1] for name in presets.PRESETS]
    for rule in [*rules, *reach.FURTHER]:
        exact, rejected = reach.resumed(reach.explore(rule))
        total += exact
        errors.update(rejected)
    return total, errors


sys.exit(main())
