"""Tests of the form of the test vectors."""

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

import jsonschema
import pytest
from spec.clauses import SPEC, chapter_files, load, prefix_of
from website.clauses import vector_files

SCHEMA = load(SPEC / "vectors" / "schema.json")
FILES = pytest.mark.parametrize("file", vector_files(), ids=lambda file: file.stem)
DIGITS = {"bool": 2, "float16": 4, "bfloat16": 4, "int32": 8, "float32": 8, "int64": 16, "float64": 16, "complex64": 16}
DIGITS["complex128"] = 32
FLOAT = re.compile(r"-?(0x.*|inf)|nan")


def nested_values(value: object) -> Iterator[object]:
    """Yield *value* and all values nested in it."""
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from nested_values(child)


def test_the_schema_is_valid():
    """The schema names the draft that validates it."""
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_chapter_has_test_vectors():
    """The names of chapters, profiles and files of test vectors correspond."""
    assert {prefix_of(file) for file in chapter_files()} == {prefix_of(file) for file in vector_files()}


@FILES
def test_files_match_the_schema(file):
    """Files contain only the documented fields."""
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(load(file))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


@FILES
def test_ids_are_unique_and_notes_are_used(file):
    """A file names its chapter and is ASCII. Each test vector describes a bug of a kind in the notes, as a statement."""
    vectors = load(file)
    assert vectors["chapter"] == file.stem
    assert [name for name, count in Counter(case["id"] for case in vectors["cases"]).items() if count > 1] == []
    assert {case["catches"].split(": ")[0] for case in vectors["cases"]} == set(vectors["notes"])
    assert [case["id"] for case in vectors["cases"] if re.search(r"\bshould\b|\btest that\b", case["catches"])] == []
    assert file.read_text("utf-8").isascii()


@FILES
def test_floats_and_arrays_have_one_notation(file):
    """A float is written as by `float.hex`, an array as one bit pattern per element, with the width of its dtype."""
    values = [(case["id"], value) for case in load(file)["cases"] for value in nested_values(case)]
    floats = [(name, text) for name, text in values if isinstance(text, str) and FLOAT.fullmatch(text)]
    assert [(name, text) for name, text in floats if float.fromhex(text).hex() != text] == []
    arrays = [(name, value) for name, value in values if isinstance(value, dict) and "bits" in value]
    assert [name for name, array in arrays if len(array["bits"]) != prod(array["shape"])] == []
    assert [name for name, array in arrays if {len(bits) for bits in array["bits"]} - {DIGITS[array["dtype"]]}] == []


@FILES
def test_lists_have_one_entry_per_step(file):
    """A trace also has the initial scale. A training step has one gradient per parameter."""
    assert [case["id"] for case in load(file)["cases"] if not matches_its_steps(case)] == []


def matches_its_steps(case):
    """Return True if the lengths of the lists in a test vector agree, and `finite` combines the flags of all replicas."""
    if case["kind"] == "step":
        counts = {len(gradients) for gradients in case["gradients"]}
        return len(case["expect"]) == len(case["gradients"]) and counts == {len(case["parameters"])}
    if "flags" in case and "".join("+" if all(flags) else "-" for flags in case["flags"]) != case["finite"]:
        return False
    return case["kind"] != "trace" or len(case["scale"]) == len(case["finite"]) + 1
