"""
Wrong implementations, each wrong in one way that was seen in life, by which the suite itself is tested.

A mutant is a right one, `plain.Plain`, with one decision taken otherwise. `audit` proves that the suite accuses each by the
clause that names its fault, and that no case and no expectation could be left out.
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
    A wrong implementation.

    Args:
        name: Unique among all mutants; what is wrong with it.
        clause: The clause that it breaks, and by which it has to be accused.
        story: Where the fault was seen in life: owner/repo#n, or a project and its version.
        make: A fresh adapter.
    """

    name: str
    clause: str
    story: str
    make: Callable[[], Adapter]


def table() -> tuple[list[Mutant], Callable[..., Callable[[type], type]]]:
    """
    Return an empty table, and a decorator that enters a class of adapters into it.

    The decorator takes the clause, the story and the arguments to make the class with: `Plain`'s are what it claims. The
    mutant's name is the class's: `GrowsOneStepLate` is "grows-one-step-late".
    """
    found: list[Mutant] = []

    def wrong(clause: str, story: str, *arguments: Any, **claims: Any) -> Callable[[type], type]:
        def entered(kind: type) -> type:
            name = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("-")
            found.append(Mutant(name, clause, story, lambda: kind(*arguments, **claims)))
            return kind

        return entered

    return found, wrong


@cache
def mutants_of(chapter: str) -> tuple[Mutant, ...]:
    """The mutants of one chapter, in the order of its module."""
    name = f"{__name__}.{chapter}"
    return tuple(import_module(name).MUTANTS) if find_spec(name) else ()


def __getattr__(name: str) -> Any:
    """`MUTANTS`, the mutants of all chapters: gathered when asked for, since the chapters' modules import this one."""
    if name == "MUTANTS":
        return tuple(mutant for chapter in CHAPTERS for mutant in mutants_of(chapter))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
