"""Specification of a row: its id, its section, and the function that creates its contenders."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from measure import Absent, Contender


@dataclass(frozen=True)
class Spec:
    """
    Specification of a row.

    The id consists of the section, the measured function, the dtype and the shape. `build` is called with True for a quick run.
    It returns the contenders, or the cells themselves if they are not measured in rounds.
    """

    id: str
    section: str  # all rows of a section run in one process
    label: str
    build: Callable[[bool], Iterable[Contender | Absent | dict[str, Any]]]
    dtype: str = ""
    shape: str = ""
    unit: str = "s"
    notes: dict[str, Any] = field(default_factory=dict)  # further members in the result file: the scale, the number of threads


def select(specs: Iterable[Spec], pattern: str | None) -> list[Spec]:
    """Return the rows whose id contains *pattern*, in which * and ? are wildcards."""
    return [spec for spec in specs if pattern is None or fnmatch(spec.id, f"*{pattern}*")]
