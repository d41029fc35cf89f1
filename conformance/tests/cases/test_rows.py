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
    """A quotient by 3 requires "division", unless its last bit may differ."""
    ids = (
        "divides-by-three-in-bfloat16",
        "divides-by-three-in-bfloat16 | ulps=1",
        "scales-beside-none",
        "unscales-complex64-by-three",
    )
    cases = vector_cases("\n".join(f"SCALING-round-once/{index} | {id}" for index, id in enumerate(ids)))
    assert [sorted(case.needs) for case in cases] == [["bfloat16", "division"], ["bfloat16"], ["none"], ["complex", "division"]]
