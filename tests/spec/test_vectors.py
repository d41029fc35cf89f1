"""Tests of the form of the test vectors."""

import re
from collections import Counter

import jsonschema
import pytest
from spec.clauses import SPEC, chapter_files, load, prefix_of
from website.clauses import vector_files

SCHEMA = load(SPEC / "vectors" / "schema.json")
FILES = pytest.mark.parametrize("file", vector_files(), ids=lambda file: file.stem)


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
