"""Tests of the tables of cases: their syntax, and the capabilities that a test vector requires."""

from ampscale_conformance.cases.rows import rows
from ampscale_conformance.cases.tensor_vectors import vector_cases

TABLE = """
A-b/first | +- | times=3 interval=3 factor=1.5 scale=2**-20 only=window needs=none,empty
    bug: its effect
A-b/second | set
    update | name=value
    another: effect
A-b/third
"""


def test_a_row_continues_in_indented_lines():
    """The last indented line is the bug, and the script and the options may be missing."""
    first, second, third = rows(TABLE)
    assert (first.name, first.script, first.needs, first.catches) == ("A-b/first", "+-+-+-", ("none", "empty"), "bug: its effect")
    assert first.options == {"interval": 3, "factor": 1.5, "scale": 2.0**-20, "only": "window"}
    assert second[1:] == ("set update", {"name": "value"}, (), "another: effect")
    assert third[1:] == ("", {}, (), "")
    assert type(first.options["interval"]) is int
    assert type(first.options["scale"]) is float


def test_a_case_requires_the_capabilities_of_its_vector():
    """A quotient by 3 requires "division", unless its last bit may differ. A float16 loss does not require "float16"."""
    needs = {
        "SCALING-round-once/a | divides-by-three-in-bfloat16": {"bfloat16", "division"},
        "SCALING-round-once/b | divides-by-three-in-bfloat16 | ulps=1": {"bfloat16"},
        "SCALING-round-once/c | scales-beside-none": {"none"},
        "SCALING-round-once/d | unscales-complex64-by-three": {"complex", "division"},
        "SCALING-round-once/e | an-empty-tree-returns-empty": {"empty"},
        "SCALING-round-once/f | float16-overflows": set(),
        "OVERFLOW-edges/g | edges-of-float16": {"float16"},
        "OVERFLOW-integers/h | integers": {"integers"},
    }
    assert [case.needs for case in vector_cases("\n".join(needs))] == [*needs.values()]
