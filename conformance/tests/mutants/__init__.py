"""
Mutants: implementations with one deliberate bug each, used to test the suite itself. Many bugs were observed in real projects.

A mutant is a conforming implementation, usually `plain.Plain` or `loop.Loop`, with one decision changed. `audit` proves that
each mutant is killed by a case of the clause that it violates, and that no case and no expectation is redundant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ampscale_conformance.model.adapter import Adapter
from ampscale_conformance.model.case import CHAPTERS


@dataclass(frozen=True)
class Mutant:
    """
    Implementation with one bug.

    Args:
        name: Description of the bug; unique among all mutants.
        clause: The clause that it violates, and whose cases must kill it.
        source: Where the bug was observed (owner/repo#n, or a project and its version), "not observed" or "planted"; and the bug.
        make: Returns a new adapter.
    """

    name: str
    clause: str
    source: str
    make: Callable[[], Adapter]


def table() -> tuple[list[Mutant], Callable[..., Callable[[type], type]]]:
    """
    Return an empty list of mutants, and a decorator that adds a class of adapters to it.

    The arguments of the decorator are the clause, the source, and the arguments of the class, such as the capabilities that
    `Plain` claims. The name of the mutant is derived from the class: `GrowsOneStepLate` is "grows-one-step-late".
    """
    mutants: list[Mutant] = []

    def breaks(clause: str, source: str, *arguments: Any, **claims: Any) -> Callable[[type], type]:
        def add(cls: type) -> type:
            name = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__).lstrip("-")
            mutants.append(Mutant(name, clause, source, lambda: cls(*arguments, **claims)))
            return cls

        return add

    return mutants, breaks


@cache
def mutants_of(chapter: str) -> tuple[Mutant, ...]:
    """Return the mutants of one chapter, in the order of its module."""
    name = f"{__name__}.{chapter}"
    return tuple(import_module(name).MUTANTS) if find_spec(name) else ()


def __getattr__(name: str) -> Any:
    """Return `MUTANTS`, the mutants of all chapters, lazily: the modules of the chapters import this one."""
    if name == "MUTANTS":
        return tuple(mutant for chapter in CHAPTERS for mutant in mutants_of(chapter))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
