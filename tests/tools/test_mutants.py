"""The committed result of `make mutants`."""

import json
from pathlib import Path

RESULT = json.loads((Path(__file__).parents[2] / "tools/mutants/result.json").read_text())


def test_most_mutants_are_killed_and_the_others_have_a_reason():
    """At least 95 % of at least 600 mutants are killed. The counts of the packages add up to the totals."""
    counts = list(RESULT["packages"].values())
    assert set(RESULT["packages"]) == {"core", "functional.py", "frameworks", "checkpoints", "simulation"}
    assert [sum(package[key] for package in counts) for key in ("tested", "killed", "survived")] == [
        RESULT["tested"], RESULT["killed"], len(RESULT["survivors"])
    ]  # fmt: skip
    assert RESULT["tested"] >= 600
    assert RESULT["killed"] >= 0.95 * RESULT["tested"]
    assert [survivor for survivor in RESULT["survivors"] if not survivor["reason"]] == []
