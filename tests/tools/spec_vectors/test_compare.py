"""Tests of the comparison: all vectors agree with the oracle, and each changed value is detected."""

import copy
import json
from collections import Counter

import pytest
from spec_vectors.compare import FOLDER, compare, main
from spec_vectors.recompute import KINDS, recomputed
from vectors import VECTORS

FILES = [path for path in sorted(VECTORS.glob("*.json")) if path.stem != "schema"]


def cases(kind=None):
    """Return the vectors of a kind, or all vectors, each with its chapter."""
    files = (json.loads(path.read_text("utf-8")) for path in FILES)
    return [(file["chapter"], case) for file in files for case in file["cases"] if kind in (None, case["kind"])]


def paths(value, prefix=()):
    """Return the paths of all scalars in a value, except the sizes in a shape."""
    if isinstance(value, dict):
        return [path for key, item in value.items() if key != "shape" for path in paths(item, (*prefix, key))]
    if isinstance(value, list):
        return [path for index, item in enumerate(value) for path in paths(item, (*prefix, index))]
    return [prefix]


def expected_paths(chapter, case):
    """Return the paths of a vector's expected values: the last scalar of each member and step."""
    leaf_paths = paths({name: case[name] for name in recomputed(chapter, case) if name in case})
    if case["kind"] == "calls":
        leaf_paths = [path for path in leaf_paths if path[2] in ("result", "applied", "expect")]
    return list({path[:3]: path for path in leaf_paths}.values())


def changed(case, path):
    """Return a copy of a vector with another value at a path."""
    other = copy.deepcopy(case)
    container = other
    for key in path[:-1]:
        container = container[key]
    container[path[-1]] = other_value(container[path[-1]], path)
    return other


def other_value(value, path):
    """Return another value of the same type: a pattern with the last bit flipped, or another dtype, number, string or flag."""
    if value is None:
        return 1
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if "dtype" in path:
        others = {"float32": "int32", "float64": "int64", "float16": "bfloat16"}  # of the same width
        return {**others, **{other: dtype for dtype, other in others.items()}}.get(value, "int32")
    if "bits" in path:
        return f"{0 if is_nan(value) else int(value, 16) ^ 1:0{len(value)}x}"
    if value in ("ok", "rejected"):
        return "rejected" if value == "ok" else "ok"
    return {"APPLIED": "OVERFLOW", "inf": "-inf"}.get(value, "0x1.8000000000000p+99")


def is_nan(pattern):
    """Return True for the pattern of a NaN of any dtype. With the last bit flipped it would still be a NaN."""
    nans = ("7e00", "7fc0", "7fc00000", "7ff8000000000000", "fe00", "ffc00000")
    return pattern in nans or "7fc00000" in (pattern[:8], pattern[8:])


def test_no_vector_differs():
    """All vectors are recomputed except errors, which are decisions."""
    report = compare(FOLDER)
    assert FOLDER == VECTORS
    assert report.differences == []
    assert not report.unknown
    kinds = Counter(case["kind"] for _, case in cases())
    assert report.recomputed == {kind: count for kind, count in kinds.items() if kind != "error"}
    assert report.decisions == {"error": kinds["error"]}


@pytest.mark.parametrize("kind", KINDS)
def test_every_changed_value_is_detected(tmp_path, kind):
    """In each vector of a kind, the last scalar of each expected member and step is changed, one at a time."""
    mutants = [
        (chapter, {**changed(case, path), "id": f"{case['id']} {path}"})
        for chapter, case in cases(kind)
        for path in expected_paths(chapter, case)
    ]
    assert mutants
    for chapter in {chapter for chapter, _ in mutants}:
        file = {"chapter": chapter, "notes": {}, "cases": [mutant for name, mutant in mutants if name == chapter]}
        (tmp_path / f"{chapter}.json").write_text(json.dumps(file), "utf-8")
    detected = {(difference.file, difference.id) for difference in compare(tmp_path).differences}
    assert [(chapter, mutant["id"]) for chapter, mutant in mutants if (chapter, mutant["id"]) not in detected] == []


def folder_with(folder, case):
    """Return the folder after writing a file that contains only this vector."""
    file = {"chapter": "scaling", "notes": {}, "cases": [{"id": "x", **case}]}
    (folder / "scaling.json").write_text(json.dumps(file, indent=2), "utf-8")
    return folder


ONE = {"dtype": "float32", "shape": [], "bits": ["3f800000"]}
RAISING = {"init_scale": (2.0).hex(), "min_scale": (1.0).hex(), "raise_at_min_scale": True}


def scaled(names):
    """Return a vector whose output has these names instead of "a" and "b"."""
    tree, output = ({"dict": dict.fromkeys(keys, ONE)} for keys in ("ab", names))
    return {"kind": "scale", "scale": (1.0).hex(), "input": tree, "output": output}


@pytest.mark.parametrize(
    ("case", "path"),
    [
        *((scaled(names), "output.dict") for names in ("a", "abc", "ac")),
        *(({"kind": "all_finite", "tree": [], "finite": flag}, "finite") for flag in (1, "true", None, [True])),
        ({"kind": "trace", "rule": RAISING, "finite": "--", "scale": [(scale).hex() for scale in (2.0, 1.0, 1.0)]}, "raises_at"),
    ],
)
def test_values_of_another_form_are_detected(tmp_path, case, path):
    """A name is missing, added or changed; a flag is not a bool; or the vector lacks the step in which the scaler raises."""
    assert [difference.path for difference in compare(folder_with(tmp_path, case)).differences] == [path]


@pytest.mark.parametrize(("case", "status"), [(scaled("ab"), 0), (scaled("a"), 1), ({"kind": "riddle"}, 1)])
def test_command_fails_for_a_difference_and_for_an_unknown_kind(tmp_path, case, status):
    """The last vector has an unknown kind."""
    assert main([str(folder_with(tmp_path, case))]) == status
