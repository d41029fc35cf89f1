"""Tests of the measurement of coverage, and of its committed result."""

import pytest
from release import measure_coverage as coverage

FILES = {
    name: {
        "summary": {"num_statements": 10, "missing_lines": 1, "num_branches": 4, "missing_branches": 2},
        "missing_lines": [7],
        "missing_branches": [[3, 5], [7, 9]],
    }
    for name in (
        "/x/src/ampscale/core/machine.py",
        "/x/src/ampscale/core/a/b.py",
        "/x/src/ampscale/presets.py",
        "/x/src/ampscale/network.py",
        "/x/conformance/src/ampscale_conformance_pytest.py",
    )
}


def test_files_are_counted_by_folder():
    """
    Modules of a package that are in none of its folders are counted together, except `presets.py`.

    The percentage is that of the reached lines and branches.
    """
    counts = dict(zip(coverage.COUNTS, (10, 1, 4, 2), strict=True))
    assert coverage.folders(FILES) == {
        "ampscale/core": {name: 2 * count for name, count in counts.items()},
        "ampscale/presets.py": counts,
        "ampscale": counts,
        "ampscale_conformance": counts,
    }
    assert coverage.percent(counts) == pytest.approx(100 * 11 / 14)


def test_branches_of_unreached_lines_are_not_reported_again():
    """Line 7 is not reached, so its branch to line 9 is left out."""
    assert coverage.unreached(FILES)[0] == "/x/conformance/src/ampscale_conformance_pytest.py: 7 3->5"
