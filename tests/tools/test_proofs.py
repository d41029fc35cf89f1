"""Proofs: the parts that need no solver, and the committed page."""

import re
from pathlib import Path

import pytest
from proofs import mutants, page, reach, theorems

from ampscale import LossScaleRule, presets

PAGE = (Path(__file__).parents[2] / "docs" / "proofs.md").read_text("utf-8")


@pytest.mark.clause("MACHINE-bounds", "MACHINE-every-sequence")
@pytest.mark.parametrize("name", presets.PRESETS)
def test_encoding_equals_the_library_in_all_reachable_states(name):
    """With an interval and a hysteresis of 1, invariants hold, and the page lists the traps: scales that no step changes."""
    (rule,) = [rule for rule in reach.settings(name, 1) if rule.overflow_tolerance != 0.5]
    explored = reach.explore(rule)
    assert reach.differing(explored) == 0
    traps = page.row_of(reach.row(name, [explored])).split(" | ")[2:]
    (row,) = re.findall(rf"^\| `{name}` \| .*\n", PAGE, re.MULTILINE)
    assert row.split(" | ")[2:] == traps


def test_encoding_equals_the_library_for_further_rules_and_no_mutant_does():
    """The rules combine fields that no preset combines."""
    explored = [reach.explore(rule) for rule in reach.FURTHER]
    assert all(reach.differing(states) == 0 for states in explored)
    assert [step for step in mutants.STEPS if not any(reach.differing(states, step) for states in explored)] == []


def test_page_lists_every_invariant_and_theorem_as_proven():
    """The last column counts the wrong transitions for which the invariant or theorem is false; there is at least one."""
    counts = dict(re.findall(r"^\| (.*) \| MACHINE-[\w-]+ \| (\d+) \|$", PAGE, re.MULTILINE))
    assert set(counts) >= {*theorems.INVARIANTS, *theorems.THEOREMS}
    assert min(map(int, counts.values())) >= 1


def test_counterexamples_on_the_page_are_runs_of_the_library():
    """Each block contains a rule, and the flags and scales of its runs."""
    blocks = re.findall(r"```text\n(LossScaleRule\(.*\))\n((?:.*\n)+?)```", PAGE)
    for text, runs in blocks:
        rule = eval(text, {"LossScaleRule": LossScaleRule})
        for run in runs.splitlines():
            trace, *shown = run.split()
            scales = [2.0 ** float(power.removeprefix("2^")) for power in shown]
            state = rule.init(like=0.0)._replace(scale=scales[0])
            for symbol, scale in zip(trace, scales[1:], strict=True):
                state = rule.update(state, symbol == ".")
                assert state.scale == scale
    assert len(blocks) == 7
