"""Cases of the suite, one module per chapter of spec/."""

from functools import cache
from importlib import import_module

from ..model.case import CHAPTERS, Case


@cache
def every_case() -> tuple[Case, ...]:
    """Return all cases of the suite, in their order."""
    return tuple(case for chapter in CHAPTERS for case in import_module(f"{__package__}.{chapter}").CASES)
