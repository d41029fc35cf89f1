"""The vectors are data of one form, and say what they catch."""

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

import jsonschema
import pytest
from spec.clauses import SPEC, chapter_files, load, prefix_of, vector_files

SCHEMA = load(SPEC / "vectors" / "schema.json")
CASES = [pytest.param(case, id=f"{file.stem}-{case['id']}") for file in vector_files() for case in load(file)["cases"]]
DIGITS = {
    "bool": 2,
    "int32": 8,
    "int64": 16,
    "float16": 4,
    "bfloat16": 4,
    "float32": 8,
    "float64": 16,
    "complex64": 16,
    "complex128": 32,
}
FLOAT = re.compile(r"-?(0x.*|inf)|nan")


def inside(value: object) -> Iterator[object]:
    """*value* and everything in it."""
    yield value
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from inside(child)


def test_the_schema_is_a_schema():
    """It is valid under its own draft, and names it."""
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_chapter_has_vectors():
    """A chapter or profile and its file of vectors share a stem."""
    assert sorted(prefix_of(file) for file in chapter_files()) == sorted(prefix_of(file) for file in vector_files())


@pytest.mark.parametrize("file", vector_files(), ids=lambda file: file.stem)
def test_a_file_is_valid_against_the_schema(file):
    """It has the documented fields and no others."""
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(load(file))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


@pytest.mark.parametrize("file", vector_files(), ids=lambda file: file.stem)
def test_a_file_is_in_order(file):
    """It names its chapter, no id occurs twice, and every note is used."""
    vectors = load(file)
    assert vectors["chapter"] == file.stem
    assert [name for name, count in Counter(case["id"] for case in vectors["cases"]).items() if count > 1] == []
    assert {case["catches"].split(": ")[0] for case in vectors["cases"]} == set(vectors["notes"])


@pytest.mark.parametrize("case", CASES)
def test_a_case_says_what_it_catches(case):
    """It states a fault, not a wish."""
    assert not re.search(r"\bshould\b|\btest that\b", case["catches"])


@pytest.mark.parametrize("case", CASES)
def test_a_float_is_written_in_one_way(case):
    """A float is as ``float.hex`` writes it."""
    floats = [value for value in inside(case) if isinstance(value, str) and FLOAT.fullmatch(value)]
    assert [text for text in floats if float.fromhex(text).hex() != text] == []


@pytest.mark.parametrize("case", CASES)
def test_an_array_has_as_many_bits_as_it_says(case):
    """One pattern an element, of the dtype's width."""
    arrays = [value for value in inside(case) if isinstance(value, dict) and "bits" in value]
    assert [array for array in arrays if len(array["bits"]) != prod(array["shape"])] == []
    assert [array for array in arrays if {len(bits) for bits in array["bits"]} - {DIGITS[array["dtype"]]}] == []


@pytest.mark.parametrize("case", CASES)
def test_a_series_is_as_long_as_its_steps(case):
    """A trace has one scale more than steps; a step has one expectation for each gradient, one gradient a parameter."""
    if case["kind"] == "trace":
        assert len(case["scale"]) == len(case["finite"]) + 1
    if case["kind"] == "step":
        assert len(case["expect"]) == len(case["gradients"])
        assert {len(gradients) for gradients in case["gradients"]} == {len(case["parameters"])}
    if "flags" in case:
        assert len(case["flags"]) == len(case["finite"])
        assert "".join("+" if all(flags) else "-" for flags in case["flags"]) == case["finite"]


def test_the_files_are_plain_ascii():
    """A vector reads the same in every encoding."""
    assert [file.name for file in vector_files() if not file.read_text("utf-8").isascii()] == []
