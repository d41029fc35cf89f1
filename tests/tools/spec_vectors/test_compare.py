"""Tests of the comparison: all vectors agree with the oracle, and each changed value is detected."""

import copy
import json
import shutil
from collections import Counter

import pytest
from spec_vectors.compare import compare, main, rewrite, spec_vectors
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
        pairs = (("float32", "int32"), ("float64", "int64"), ("float16", "bfloat16"))  # of the same width
        return next((pair[pair[0] == value] for pair in pairs if value in pair), "int32")
    if "bits" in path:
        return f"{0 if is_nan(value) else int(value, 16) ^ 1:0{len(value)}x}"
    if value in ("ok", "rejected"):
        return "rejected" if value == "ok" else "ok"
    return {"APPLIED": "OVERFLOW", "inf": "-inf"}.get(value, "0x1.8000000000000p+99")


def is_nan(pattern):
    """Return True for the pattern of a NaN of any dtype. With the last bit flipped it would still be a NaN."""
    nans = ("7e00", "7fc0", "7fc00000", "7ff8000000000000", "fe00", "ffc00000")
    return pattern in nans or "7fc00000" in (pattern[:8], pattern[8:])


def copied_vectors(tmp_path):
    """Return a copy of the folder of the vectors."""
    return shutil.copytree(VECTORS, tmp_path / "vectors")


def test_no_vector_differs(capsys):
    """All vectors are recomputed except errors, which are decisions. Without --write, the command writes no file."""
    contents = {path: path.read_bytes() for path in FILES}
    assert main([]) == 0
    output = capsys.readouterr().out
    assert output.startswith("recomputed: ")
    assert "\ndecisions, not computed: " in output
    assert output.endswith("\ndifferences: 0\n")
    assert {path: path.read_bytes() for path in FILES} == contents
    report = compare(spec_vectors())
    assert spec_vectors() == VECTORS
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


@pytest.mark.parametrize("raises_at", [None, 0, 3])
def test_wrong_raises_at_is_detected(tmp_path, raises_at):
    """The published scaler raises an error in the second step of the vector."""
    rule = {"init_scale": (2.0).hex(), "min_scale": (1.0).hex(), "raise_at_min_scale": True}
    case = {"id": "x", "kind": "trace", "rule": rule, "finite": "--", "scale": [(2.0).hex(), (1.0).hex(), (1.0).hex()]}
    wrong = case if raises_at is None else {**case, "raises_at": raises_at}
    file = {"chapter": "machine", "notes": {}, "cases": [{**case, "raises_at": 1}, wrong]}
    (tmp_path / "machine.json").write_text(json.dumps(file), "utf-8")
    (difference,) = compare(tmp_path).differences
    assert (difference.path, difference.stored, difference.computed) == ("raises_at", raises_at, 1)


def folder_with(folder, case):
    """Return the folder after writing a file that contains only this vector."""
    file = {"chapter": "scaling", "notes": {}, "cases": [{"id": "x", **case}]}
    (folder / "scaling.json").write_text(json.dumps(file, indent=2), "utf-8")
    return folder


@pytest.mark.parametrize("names", ["a", "abc", "ac"])
def test_tree_with_other_names_is_detected(tmp_path, names):
    """One name is missing, added or changed."""
    one = {"dtype": "float32", "shape": [], "bits": ["3f800000"]}
    tree, other = ({"dict": dict.fromkeys(keys, one)} for keys in ("ab", names))
    (difference,) = compare(
        folder_with(tmp_path, {"kind": "scale", "scale": (1.0).hex(), "input": tree, "output": other})
    ).differences
    assert (difference.path, difference.stored, difference.computed) == ("output.dict", other["dict"], tree["dict"])


@pytest.mark.parametrize("value", [1, "true", None, [True]])
def test_flag_must_be_a_bool(tmp_path, value):
    """The number 1 is not equal to true."""
    assert len(compare(folder_with(tmp_path, {"kind": "all_finite", "tree": [], "finite": value})).differences) == 1


def test_rewrite_keeps_the_order_and_the_nans_of_a_member(tmp_path):
    """Only the array that differs is replaced."""
    parts = {"float32": ["40000000", "40400000"], "float16": ["fe01"]}
    tree = {name: {"dtype": name, "shape": [len(bits)], "bits": bits} for name, bits in parts.items()}
    wrong = json.loads(json.dumps(tree).replace("40400000", "40400001"))
    case = {"kind": "scale", "scale": (1.0).hex(), "input": {"dict": tree}, "output": {"dict": dict(reversed(wrong.items()))}}
    folder = folder_with(tmp_path, case)
    text = (folder / "scaling.json").read_text("utf-8")
    assert rewrite(folder) == [folder / "scaling.json"]
    assert (folder / "scaling.json").read_text("utf-8") == text.replace("40400001", "40400000")


def test_rewrite_restores_changed_values(tmp_path):
    """The last expected value of each vector is changed. The files are restored byte for byte, and no other file is written."""
    folder, changes = copied_vectors(tmp_path), Counter()
    for chapter, case in cases():
        file = folder / f"{chapter}.json"
        for path in expected_paths(chapter, case)[-1:] if case["kind"] in KINDS else ():
            if path == paths({path[0]: case[path[0]]})[-1]:
                file.write_text(with_change(file.read_text("utf-8"), case, path), "utf-8")
                changes[file, case["kind"]] += 1
    assert {kind for _, kind in changes} == set(KINDS)
    assert rewrite(folder) == sorted({file for file, _ in changes})
    for file in FILES:
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert rewrite(folder) == []


def with_change(text, case, path):
    """Return the text of a file with another value for the last scalar of a vector's member."""
    prefix = f'\n      "{path[0]}": '
    start = text.index(prefix, text.index(f'"id": "{case["id"]}"')) + len(prefix)
    _, end = json.JSONDecoder().raw_decode(text, start)
    value = case
    for key in path:
        value = value[key]
    index = text.rindex(json.dumps(value), start, end)
    return text[:index] + json.dumps(other_value(value, path)) + text[index + len(json.dumps(value)) :]


def test_rewrite_replaces_a_value_that_spans_two_lines(tmp_path):
    """The recomputed value is written on one line, and the file is restored byte for byte."""
    folder = copied_vectors(tmp_path)
    path = folder / "norms.json"
    text = path.read_text("utf-8")
    first = json.loads(text)["cases"][0]
    path.write_text(text.replace(json.dumps(first["norm"]), "[null,\n 3]", 1), "utf-8")
    rewrite(folder)
    assert path.read_text("utf-8") == text


def test_rewrite_does_not_add_members(tmp_path):
    """A missing member raises an error, and the file is left unchanged."""
    folder = copied_vectors(tmp_path)
    path = folder / "machine.json"
    without = path.read_text("utf-8").replace('"raises_at":', '"notes":', 1)
    path.write_text(without, "utf-8")
    with pytest.raises(ValueError, match="must be given the member raises_at; edit the file by hand"):
        rewrite(folder)
    assert path.read_text("utf-8") == without


def test_command_prints_differences(tmp_path, capsys):
    """A difference is printed with its path and both values. --write corrects it, so that the next run returns 0."""
    folder = copied_vectors(tmp_path)
    path = folder / "paddle.json"
    right, wrong = '"0x1.0000000000000p+6", "0x1.0', '"0x1.0000000000000p+7", "0x1.0'
    path.write_text(path.read_text("utf-8").replace(right, wrong, 1), "utf-8")
    assert main([str(folder)]) == 1
    difference = 'paddle: golden-accumulated: scale[0]\n- "0x1.0000000000000p+7"\n+ "0x1.0000000000000p+6"\nrecomputed: '
    assert capsys.readouterr().out.startswith(difference)
    assert main([str(folder), "--write"]) == 1
    assert capsys.readouterr().out.endswith(f"differences: 1\nwritten: {path}\n")
    assert main([str(folder)]) == 0
    assert path.read_bytes() == (VECTORS / path.name).read_bytes()


def test_command_fails_for_an_unknown_kind(tmp_path, capsys):
    """The output has the number of vectors of an unknown kind."""
    file = {"chapter": "machine", "notes": {}, "cases": [{"id": "x", "kind": "riddle"}]}
    (tmp_path / "machine.json").write_text(json.dumps(file), "utf-8")
    assert main([str(tmp_path)]) == 1
    assert "of an unknown kind: 1 (1 riddle)\n" in capsys.readouterr().out


def test_command_rejects_a_folder_without_vectors(tmp_path, capsys):
    """The exit status is 2, as for invalid arguments."""
    with pytest.raises(SystemExit) as exit_info:
        main([str(tmp_path)])
    assert exit_info.value.code == 2
    assert f"there are no vectors in {tmp_path}" in capsys.readouterr().err
