"""Tests of the check of a release; tests/test_distributions.py builds and installs the distributions."""

import pytest
from release import check

FILES = [f"{name}-0.1.0{ending}" for name in ("ampscale", "ampscale_conformance") for ending in ("-py3-none-any.whl", ".tar.gz")]


@pytest.fixture
def source(tmp_path):
    """Return a source tree with the versions of both distributions, and a citation."""
    for file in check.VERSIONS.values():
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CITATION.cff").write_text("title: x\nversion: 0.1.0\n")
    return tmp_path


def test_versions_of_the_source_are_accepted(source):
    """A commit may have no tag."""
    for tags in ([], ["v0.1.0"]):
        check.check_versions([source / name for name in FILES], source, tags)


@pytest.mark.parametrize(
    ("names", "citation", "tags", "message"),
    [
        (FILES[1:], "0.1.0", [], "the files must be"),
        ([*FILES, "more.whl"], "0.1.0", [], "the files must be"),
        ([name.replace("0.1.0", "0.2.0") for name in FILES], "0.1.0", [], "the files must be"),
        (FILES, "0.2.0", [], "CITATION.cff must have version 0.1.0, got 0.2.0"),
        (FILES, "0.1.0", ["v0.2.0"], "the tag must be v0.1.0, got v0.2.0"),
    ],
)
def test_other_versions_are_rejected(source, names, citation, tags, message):
    """The names of the files, the citation and the tag must agree with the source."""
    (source / "CITATION.cff").write_text(f"title: x\nversion: {citation}\n")
    with pytest.raises(check.CheckError, match=message):
        check.check_versions([source / name for name in names], source, tags)


def test_builds_with_different_bytes_are_rejected(tmp_path):
    """A file that only one of the builds contains counts as different."""
    first, second = ([tmp_path / build / name for name in ("a.whl", "b.whl")] for build in ("first", "second"))
    for file in (*first, *second):
        file.parent.mkdir(exist_ok=True)
        file.write_text(file.name)
    check.check_same_bytes(first, second)
    second[0].write_text("other")
    with pytest.raises(check.CheckError, match=r"two builds must have the same bytes, got different a\.whl, b\.whl$"):
        check.check_same_bytes(first, second[:1])
