"""
Versions of the suite and of the specification, which are independent of the version of the package.

Ids of cases and clauses are stable. A new case arrives in a minor version of the suite and is listed in `ADDED`; a case that is
renamed is listed in `RENAMED`, so that expectations with its former id remain valid. Removing a case or making it stricter
requires a major version. Therefore an upgrade adds no failure to a run with `--suite`, which selects the cases of one version.
"""

from collections.abc import Mapping
from functools import cache

from .clauses import spec_folder

SUITE = "1.0"
ADDED: Mapping[str, str] = {}  # for each case newer than suite 1.0, by its id: the version of the suite that added it
RENAMED: Mapping[str, str] = {}  # for each renamed case, by its former id: its present id


@cache
def spec_version() -> str:
    """Return the version of the specification, from spec/VERSION."""
    return (spec_folder() / "VERSION").read_text("utf-8").strip()


def belongs(case: str, suite: str) -> bool:
    """Return True if a version of the suite contains the case with this id; raise a ValueError if there is no such version."""
    if _number(suite) > _number(SUITE):
        raise ValueError(f"suite must be at most {SUITE}, got {suite}; upgrade ampscale-conformance")
    return _number(ADDED.get(case, "1.0")) <= _number(suite)


def _number(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal()) or major == "0":
        raise ValueError(f"a version of the suite must be MAJOR.MINOR from 1.0 on, such as {SUITE}, got {version!r}")
    return int(major), int(minor)
