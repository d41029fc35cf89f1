"""Tests of the sources of the documentation site, which need no Sphinx."""

import csv
import json
import re

import pytest
from ampscale_conformance.model.clauses import chapter_files, clauses_in
from release.trend import HISTORY, read_matrix
from website import check_links, layout, pages
from website import clauses as website_clauses
from website.__main__ import page
from website.clauses import slug

SOURCES, LINKED = layout.read_pages()


def test_the_navigation_lists_every_page_of_docs():
    """Translations are listed, too."""
    assert [path for path in layout.unlisted(SOURCES) if path.startswith("docs/")] == []


def test_the_navigation_lists_no_page_twice():
    """Sphinx shows a page below one section only. The entries are existing pages."""
    targets = [target for entries in layout.navigation().values() for target in entries]
    assert len(targets) == len(set(targets))
    assert set(targets) <= set(SOURCES)


def test_no_two_files_are_one_page_of_the_site():
    """The files are the pages and all files that they link to."""
    site_paths = [layout.site_path(path) for path in [*SOURCES, *LINKED - SOURCES.keys()]]
    assert len(site_paths) == len(set(site_paths))


def test_every_clause_is_a_heading_with_its_checks():
    """A clause of the level "must" has a link to a vector, a case or a test."""
    for file in chapter_files():
        path = file.relative_to(layout.ROOT).as_posix()
        text = website_clauses.with_checks(layout.site_path(path), SOURCES[path])
        for clause in clauses_in(file):
            body = text.partition(f"### {clause.id} · {clause.level}\n")[2].partition("\n### ")[0]
            assert body
            assert clause.level != "must" or "](" in body.partition("<details")[2]


@pytest.mark.parametrize("file", website_clauses.vector_files(), ids=lambda file: file.stem)
def test_links_of_clauses_to_vectors_lead_to_headings(file):
    """The anchor of a vector is that of its heading."""
    anchors = {slug(heading) for heading in re.findall(r"^## (.+)$", website_clauses.vectors_page(file), re.MULTILINE)}
    links = [link for kinds in website_clauses.checks().values() for link in kinds["vector"].values()]
    assert {link.partition("#")[2] for link in links if f"/{file.stem}.md#" in link} == anchors


def test_links_of_clauses_to_cases_and_tests_lead_to_headings():
    """The page of a test file has a heading for each test with a clause."""
    cases = {slug(heading) for heading in re.findall(r"^### (.+)$", website_clauses.cases_page(), re.MULTILINE)}
    for kinds in website_clauses.checks().values():
        assert {link.partition("#")[2] for link in kinds["case"].values()} <= cases
    for file in website_clauses.test_files():
        page = pages.source_page(file.relative_to(layout.ROOT).as_posix())
        marked = {name for name, ids in website_clauses.marked_tests(file) if ids}
        assert marked <= set(re.findall(r"^## (.+)$", page, re.MULTILINE))


def test_the_page_of_the_matrix_lists_every_failed_case():
    """Errors are listed like failures."""
    listed = re.findall(r"^- [A-Z]+-[\w-]+: [\w-]+, ([\w-]+)$", pages.matrix_page(), re.MULTILINE)
    results = [result["verdict"] for column in read_matrix()["implementations"] for result in column["results"].values()]
    assert sorted(listed) == sorted(verdict for verdict in results if verdict not in ("pass", "xfail", "unsupported"))
    assert {"fail", "error"} <= set(listed)


def test_the_page_of_the_matrix_has_all_earlier_counts():
    """They are in the order of implementations."""
    table = pages.matrix_page().partition("\n## History\n")[2]
    runs = list(csv.reader(HISTORY.read_text("utf-8").splitlines()))[1:]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| 20")]
    assert rows == sorted(runs, key=lambda run: run[1])


def test_each_implementation_has_a_badge_with_its_counts():
    """The page of the matrix links to each file, whose name has no version of the implementation in it."""
    counts = [implementation["counts"] for implementation in read_matrix()["implementations"]]
    badges = {path: json.loads(text) for path, text in pages.badges().items()}
    expected = [f"{each.get('pass', 0)} of {sum(each.values()) - each.get('unsupported', 0)}" for each in counts]
    assert [badge["message"] for badge in badges.values()] == expected
    assert all(f'"{path.removeprefix("conformance/")}"' in pages.matrix_page() for path in badges)
    assert "conformance/badges/torch-gradscaler.json" in badges


def test_reports_for_maintainers_are_pages_below_their_index():
    """The navigation lists their index, and not the reports themselves."""
    others = layout.unlisted(SOURCES)
    home, index = (page(path, "", others).split("\n") for path in ("README.md", "conformance/upstream/README.md"))
    assert "conformance/upstream/index.md" in home
    assert [path for path in home if path.startswith("conformance/upstream/torch")] == []
    assert "torch/stages_disagree.md" in index


@pytest.mark.parametrize(
    ("link", "is_valid"),
    [
        ("https://github.com/a/b#c", True),
        ("https://github", False),
        ("https://x.org/a b", False),
        ("a.html#b", True),
        ("a.html#c", False),
    ],
)
def test_broken_links_are_found(link, is_valid, tmp_path):
    """A link to another site must have a host with a domain. A link within the site must lead to an existing page and anchor."""
    (tmp_path / "a.html").write_text(f'<p id="b"><a href="{link}">x</a></p>')
    assert check_links.main(tmp_path) == (not is_valid)
