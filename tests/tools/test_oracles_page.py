"""Counts on the page of the comparison with the published objects."""

from oracles import page


def row(mismatching, in_the_window, reason):
    """Return a comparison of 1025 trajectories, one of them in the window, with the numbers of those that differ."""
    window = {"mismatching": in_the_window, "patterns": 1}
    names = {"preset": "torch", "package": "torch", "class": "GradScaler", "how": ""}
    return {**names, "mismatching": mismatching, "patterns": 1024, "window": window, "reason": reason}


def test_the_totals_include_the_windows():
    """The differences with a known reason and those without one are counted in the same way."""
    result = {"date": "2026-01-01", "seconds": 1, "rows": [row(2, 1, ""), row(4, 1, "known")]}
    assert "2050 trajectories; 3 differ without a known reason, 5 with one." in page.totals(result)
