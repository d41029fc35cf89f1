"""Tests of the comparison: all vectors agree with the oracle, and changed values are detected."""

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


def test_no_vector_differs():
    """All vectors are recomputed except errors, which are decisions."""
    report = compare(FOLDER)
    assert FOLDER == VECTORS
    assert report.differences == []
    assert not report.unknown
    kinds = Counter(case["kind"] for _, case in cases())
    assert report.recomputed == {kind: count for kind, count in kinds.items() if kind != "error"}
    assert report.decisions == {"error": kinds["error"]}


INPUTS = {"id", "kind", "clauses", "catches", "preset", "rule", "class", "cell", "arguments", "scale_sense", "max_norm", "dtype"}
INPUTS |= {"input", "tree", "flags", "gradients", "parameters", "optimizer", "optimizers"}


def test_every_expected_member_is_recomputed():
    """All other members are inputs; `finite` is an input of a trace, and `scale` of a vector with arrays."""
    for chapter, case in cases():
        if case["kind"] in KINDS:
            scale = {"scale"} if {"input", "tree", "gradients"} & set(case) else set()
            finite = {"finite"} if case["kind"] == "trace" else set()
            assert set(case) - set(recomputed(chapter, case)) <= INPUTS | scale | finite, case["id"]


def folder_with(folder, case, chapter="scaling"):
    """Return the folder after writing a file that contains only this vector."""
    file = {"chapter": chapter, "notes": {}, "cases": [{"id": "x", **case}]}
    (folder / "vectors.json").write_text(json.dumps(file), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("trace", '"scale": ["0x1', '"scale": ["0x0'),
        ("step", '"status": "APPLIED"', '"status": "OVERFLOW"'),
        ("calls", '"result": "ok"', '"result": "rejected"'),
        ("calls", '"applied": true', '"applied": false'),
        ("calls", '"expect": {"scale": "0x1', '"expect": {"scale": "0x0'),
        ("calls", '"bits": ["40e00000"', '"bits": ["40e00001"'),  # parameters after a step
    ],
)
def test_changed_results_are_detected(tmp_path, kind, old, new):
    """Each vector of the kind that contains the old text is changed."""
    changed = [(chapter, json.dumps(case).replace(old, new)) for chapter, case in cases(kind) if old in json.dumps(case)]
    assert changed
    for chapter, text in changed:
        assert compare(folder_with(tmp_path, json.loads(text), chapter)).differences, text


ONE, NEXT = ({"dtype": "float32", "shape": [], "bits": [bits]} for bits in ("3f800000", "3f800001"))
RAISING = {"init_scale": (2.0).hex(), "min_scale": (1.0).hex(), "raise_at_min_scale": True}


def scaled(names):
    """Return a vector whose output has these names instead of "a" and "b"."""
    tree, output = ({"dict": dict.fromkeys(keys, ONE)} for keys in ("ab", names))
    return {"kind": "scale", "scale": (1.0).hex(), "input": tree, "output": output}


@pytest.mark.parametrize(
    ("case", "path"),
    [
        *((scaled(names), "output.dict") for names in ("a", "abc", "ac")),
        (scaled("ab") | {"output": {"dict": {"a": ONE, "b": NEXT}}}, "output.dict.b"),
        *(({"kind": "all_finite", "tree": [], "finite": flag}, "finite") for flag in (1, "true", None, [True])),
        ({"kind": "trace", "rule": RAISING, "finite": "--", "scale": [(scale).hex() for scale in (2.0, 1.0, 1.0)]}, "raises_at"),
    ],
)
def test_values_of_another_form_are_detected(tmp_path, case, path):
    """A name, a bit or the type of a flag is wrong, or the vector lacks the step in which the scaler raises."""
    assert [difference.path for difference in compare(folder_with(tmp_path, case)).differences] == [path]


@pytest.mark.parametrize(("case", "status"), [(scaled("ab"), 0), (scaled("a"), 1), ({"kind": "riddle"}, 1)])
def test_command_fails_for_a_difference_and_for_an_unknown_kind(tmp_path, case, status):
    """The last vector has an unknown kind."""
    assert main([str(folder_with(tmp_path, case))]) == status
