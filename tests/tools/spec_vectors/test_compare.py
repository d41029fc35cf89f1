"""Every expected value of every vector is the oracle's too; and one that is not would be seen."""

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
    """Each vector with its chapter."""
    read = (json.loads(path.read_text("utf-8")) for path in FILES)
    return [(file["chapter"], case) for file in read for case in file["cases"] if kind in (None, case["kind"])]


def places(value, path=()):
    """The path of every single thing that a value says."""
    if isinstance(value, dict):
        found = [place for key, item in value.items() if key != "shape" for place in places(item, (*path, key))]
    elif isinstance(value, list):
        found = [place for at, item in enumerate(value) for place in places(item, (*path, at))]
    else:
        return [path]
    return found


def expected(chapter, case):
    """The path of what a vector expects: the last thing that each of its members says of each step."""
    found = places({name: case[name] for name in recomputed(chapter, case) if name in case})
    if case["kind"] == "calls":
        found = [place for place in found if place[2] in ("result", "applied", "expect")]
    return list({place[:3]: place for place in found}.values())


def changed(case, place):
    """A copy of a vector that says something else in one place."""
    other = copy.deepcopy(case)
    holder = other
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = another(holder[place[-1]], place)
    return other


def another(said, place):
    """Something else of the same kind: the last bit of a pattern, the next dtype, another number, word or flag."""
    if said is None:
        return 1
    if isinstance(said, bool):
        return not said
    if isinstance(said, int):
        return said + 1
    if "dtype" in place:
        same_width = {"float32": "int32", "int64": "float64", "float64": "int64", "float16": "bfloat16", "bfloat16": "float16"}
        return same_width.get(said, "int32")
    if "bits" in place:
        return f"{0 if is_nan(said) else int(said, 16) ^ 1:0{len(said)}x}"
    if said in ("ok", "rejected"):
        return "rejected" if said == "ok" else "ok"
    return {"APPLIED": "OVERFLOW", "inf": "-inf"}.get(said, "0x1.8000000000000p+99")


def is_nan(pattern):
    """Of any format: another one would be the same NaN."""
    known = ("7e00", "7fc0", "7fc00000", "7ff8000000000000", "fe00", "ffc00000")
    return pattern in known or "7fc00000" in (pattern[:8], pattern[8:])


def copied(tmp_path):
    """The folder of the vectors, to be changed."""
    return shutil.copytree(VECTORS, tmp_path / "vectors")


def test_no_vector_differs(capsys):
    """All are recomputed but the errors, which are decisions. The command says so, and writes nothing by itself."""
    before = {path: path.read_bytes() for path in FILES}
    assert main([]) == 0
    told = capsys.readouterr().out
    assert told.startswith("recomputed: ")
    assert "\ndecisions, with nothing to compute: " in told
    assert told.endswith("\ndifferences: 0\n")
    assert {path: path.read_bytes() for path in FILES} == before
    outcome = compare(spec_vectors())
    assert spec_vectors() == VECTORS
    assert outcome.differences == []
    assert not outcome.unknown
    kinds = Counter(case["kind"] for _, case in cases())
    assert outcome.recomputed == {kind: count for kind, count in kinds.items() if kind != "error"}
    assert outcome.decisions == {"error": kinds["error"]}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_changed_is_seen(tmp_path, kind):
    """Each expectation of each vector of a kind, one at a time."""
    mutants = [
        (chapter, {**changed(case, place), "id": f"{case['id']} {place}"})
        for chapter, case in cases(kind)
        for place in expected(chapter, case)
    ]
    assert mutants
    for chapter in {chapter for chapter, _ in mutants}:
        file = {"chapter": chapter, "notes": {}, "cases": [mutant for of, mutant in mutants if of == chapter]}
        (tmp_path / f"{chapter}.json").write_text(json.dumps(file), "utf-8")
    seen = {(difference.file, difference.id) for difference in compare(tmp_path).differences}
    assert [(chapter, mutant["id"]) for chapter, mutant in mutants if (chapter, mutant["id"]) not in seen] == []


@pytest.mark.parametrize("raises_at", [None, 0, 3])
def test_a_stop_that_is_missing_or_too_much_is_seen(tmp_path, raises_at):
    """The vector stops in its second step."""
    rule = {"init_scale": (2.0).hex(), "min_scale": (1.0).hex(), "raise_at_min_scale": True}
    case = {"id": "x", "kind": "trace", "rule": rule, "finite": "--", "scale": [(2.0).hex(), (1.0).hex(), (1.0).hex()]}
    said = case if raises_at is None else {**case, "raises_at": raises_at}
    file = {"chapter": "machine", "notes": {}, "cases": [{**case, "raises_at": 1}, said]}
    (tmp_path / "machine.json").write_text(json.dumps(file), "utf-8")
    (difference,) = compare(tmp_path).differences
    assert (difference.where, difference.said, difference.computed) == ("raises_at", raises_at, 1)


def alone(folder, case):
    """The folder, with a file of this vector and no other."""
    file = {"chapter": "scaling", "notes": {}, "cases": [{"id": "x", **case}]}
    (folder / "scaling.json").write_text(json.dumps(file, indent=2), "utf-8")
    return folder


@pytest.mark.parametrize("names", ["a", "abc", "ac"])
def test_a_tree_with_other_names_is_seen(tmp_path, names):
    """One too few, one too many, and another one."""
    one = {"dtype": "float32", "shape": [], "bits": ["3f800000"]}
    tree, other = ({"dict": dict.fromkeys(keys, one)} for keys in ("ab", names))
    (difference,) = compare(alone(tmp_path, {"kind": "scale", "scale": (1.0).hex(), "input": tree, "output": other})).differences
    assert (difference.where, difference.said, difference.computed) == ("output.dict", other["dict"], tree["dict"])


@pytest.mark.parametrize("said", [1, "true", None, [True]])
def test_a_flag_is_nothing_but_a_flag(tmp_path, said):
    """A one is not true."""
    assert len(compare(alone(tmp_path, {"kind": "all_finite", "tree": [], "finite": said})).differences) == 1


def test_a_member_that_is_rewritten_keeps_its_order_and_its_nan(tmp_path):
    """Only the array that differs is replaced, in its place."""
    parts = {"float32": ["40000000", "40400000"], "float16": ["fe01"]}
    tree = {name: {"dtype": name, "shape": [len(bits)], "bits": bits} for name, bits in parts.items()}
    wrong = json.loads(json.dumps(tree).replace("40400000", "40400001"))
    case = {"kind": "scale", "scale": (1.0).hex(), "input": {"dict": tree}, "output": {"dict": dict(reversed(wrong.items()))}}
    folder = alone(tmp_path, case)
    before = (folder / "scaling.json").read_text("utf-8")
    assert rewrite(folder) == [folder / "scaling.json"]
    assert (folder / "scaling.json").read_text("utf-8") == before.replace("40400001", "40400000")


def test_what_was_changed_is_written_back_as_it_stood(tmp_path):
    """The last thing that each vector expects; the files are then byte for byte as before, and no other was written."""
    folder, touched = copied(tmp_path), Counter()
    for chapter, case in cases():
        path = folder / f"{chapter}.json"
        for place in expected(chapter, case)[-1:] if case["kind"] in KINDS else ():
            if place == places({place[0]: case[place[0]]})[-1]:
                path.write_text(with_change(path.read_text("utf-8"), case, place), "utf-8")
                touched[path, case["kind"]] += 1
    assert {kind for _, kind in touched} == set(KINDS)
    assert rewrite(folder) == sorted({path for path, _ in touched})
    for path in FILES:
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert rewrite(folder) == []


def with_change(text, case, place):
    """The text of a file with the last thing that a vector's member says said otherwise."""
    start = text.index(f'\n      "{place[0]}": ', text.index(f'"id": "{case["id"]}"')) + len(place[0]) + 11
    _, end = json.JSONDecoder().raw_decode(text, start)
    said = case
    for step in place:
        said = said[step]
    at = text.rindex(json.dumps(said), start, end)
    return text[:at] + json.dumps(another(said, place)) + text[at + len(json.dumps(said)) :]


def test_a_rewritten_value_of_another_length_is_valid_json(tmp_path):
    """It stands on one line, and nothing around it has moved."""
    folder = copied(tmp_path)
    path = folder / "norms.json"
    text = path.read_text("utf-8")
    first = json.loads(text)["cases"][0]
    path.write_text(text.replace(json.dumps(first["norm"]), "[null,\n 3]", 1), "utf-8")
    rewrite(folder)
    assert path.read_text("utf-8") == text


def test_a_member_that_has_to_come_is_a_persons_work(tmp_path):
    """The file is left as it was."""
    folder = copied(tmp_path)
    path = folder / "machine.json"
    without = path.read_text("utf-8").replace('"raises_at":', '"notes":', 1)
    path.write_text(without, "utf-8")
    with pytest.raises(ValueError, match="must gain its member raises_at, which is for a person to do"):
        rewrite(folder)
    assert path.read_text("utf-8") == without


def test_the_command_shows_what_differs(tmp_path, capsys):
    """The place, what is said and what is computed; with --write it is put right, and the next run is content."""
    folder = copied(tmp_path)
    path = folder / "paddle.json"
    right, wrong = '"0x1.0000000000000p+6", "0x1.0', '"0x1.0000000000000p+7", "0x1.0'
    path.write_text(path.read_text("utf-8").replace(right, wrong, 1), "utf-8")
    assert main([str(folder)]) == 1
    wanted = 'paddle: golden-accumulated: scale[0]\n- "0x1.0000000000000p+7"\n+ "0x1.0000000000000p+6"\nrecomputed: '
    assert capsys.readouterr().out.startswith(wanted)
    assert main([str(folder), "--write"]) == 1
    assert capsys.readouterr().out.endswith(f"differences: 1\nwritten: {path}\n")
    assert main([str(folder)]) == 0
    assert path.read_bytes() == (VECTORS / path.name).read_bytes()


def test_an_unknown_kind_is_told_and_no_success(tmp_path, capsys):
    """It is neither recomputed nor a decision."""
    file = {"chapter": "machine", "notes": {}, "cases": [{"id": "x", "kind": "riddle"}]}
    (tmp_path / "machine.json").write_text(json.dumps(file), "utf-8")
    assert main([str(tmp_path)]) == 1
    assert "of a kind that the oracle does not know: 1 (1 riddle)\n" in capsys.readouterr().out


def test_a_folder_without_vectors_is_refused(tmp_path, capsys):
    """That nothing differs would be true, and no answer."""
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2
    assert f"there are no vectors in {tmp_path}" in capsys.readouterr().err
