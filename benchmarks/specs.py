"""What a row is before it is measured: its name, where it runs, and what makes its contenders."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from measure import Absent, Contender


@dataclass(frozen=True)
class Spec:
    """
    A row.

    Its id is made of its section, what is measured, the dtype and the shape. `build` gives the contenders, given whether the run
    is a quick one; or, where the unit is not seconds, `build` gives the cells themselves.
    """

    id: str
    section: str  # rows of one section run in one process
    what: str
    build: Callable[[bool], Iterable[Contender | Absent | dict[str, Any]]]
    dtype: str = ""
    shape: str = ""
    unit: str = "s"
    notes: dict[str, Any] = field(default_factory=dict)  # more for the file: the scale, how many threads


def chosen(specs: Iterable[Spec], pattern: str | None) -> list[Spec]:
    """Those whose id has *pattern* in it, which may hold * and ?."""
    return [spec for spec in specs if pattern is None or fnmatch(spec.id, f"*{pattern}*")]
