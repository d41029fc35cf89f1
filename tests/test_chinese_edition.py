"""Tests that the Chinese edition in docs/zh has the structure, code, terms and links of the English pages."""

import re
from itertools import zip_longest
from pathlib import Path
from posixpath import normpath

import pytest

ROOT = Path(__file__).parent.parent
EDITION = ROOT / "docs" / "zh"
ENGLISH = {
    **{
        name: f"docs/{name}"
        for name in (
            "cupy.md",
            "glossary.md",
            "jax.md",
            "mindspore.md",
            "numpy.md",
            "paddle.md",
            "porting.md",
            "ranks.md",
            "torch.md",
        )
    },
    **{f"profiles/{path.name}": f"spec/profiles/{path.name}" for path in (ROOT / "spec" / "profiles").glob("*.md")},
    "README.md": "README.md",
}
PAIRS = pytest.mark.parametrize(
    ("chinese", "english"), [(f"docs/zh/{name}", page) for name, page in ENGLISH.items()], ids=list(ENGLISH)
)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def text_of(path):
    return (ROOT / path).read_text("utf-8")


def sections(path):
    """Return the text of each section without code blocks and quotations; the first section precedes the first ``##``."""
    text = re.sub(r"^>.*\n", "", BLOCK.sub("", text_of(path)), flags=re.MULTILINE)
    return re.split(r"^(?=##)", text, flags=re.MULTILINE)


def headings(path):
    """Return the ``#`` signs of each heading; for a clause, the whole heading with the clause's id and level."""
    lines = re.findall(r"^#+ .*", BLOCK.sub("", text_of(path)), re.MULTILINE)
    return [line if " · " in line else line.partition(" ")[0] for line in lines]


def targets(path):
    """Return the files, with anchors, that a page links to, except Chinese pages and the English page that it translates."""
    links = re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", BLOCK.sub("", text_of(path)))
    resolved = [normpath(f"{Path(path).parent.as_posix()}/{file}") + anchor for file, anchor in links if file]
    translated = {ENGLISH[path.removeprefix("docs/zh/")]} if path.startswith("docs/zh/") else set()
    return {target for target in resolved if not target.startswith("docs/zh/")} - translated


def test_every_page_translates_an_english_page():
    """The edition has the README, pages of the section Start, the page on porting, the glossary and the profiles."""
    assert sorted(path.relative_to(EDITION).as_posix() for path in EDITION.rglob("*.md")) == sorted(ENGLISH)


@PAIRS
def test_headings_and_clauses_are_the_same(chinese, english):
    """Headings have the same levels and order; headings of clauses also have the same ids."""
    assert headings(chinese) == headings(english)


@PAIRS
def test_code_blocks_are_the_same(chinese, english):
    """Each block is equal byte for byte, so the tests that run the code of the English pages also cover the Chinese pages."""
    assert BLOCK.findall(text_of(chinese)) == BLOCK.findall(text_of(english))


@PAIRS
def test_sections_have_the_same_names_numbers_and_tables(chinese, english):
    """From the first ``##`` on, names in code font and numbers of two or more digits are compared; in tables, cells per row."""
    pairs = zip_longest(sections(chinese), sections(english), fillvalue="")
    for index, texts in enumerate(pairs):
        names = [{re.sub(r"\s+", " ", name) for name in re.findall(r"`([^`]+)`", text)} for text in texts]
        assert index == 0 or names[0] == names[1], texts[0]
        numbers = [set(re.findall(r"\d\d+", re.sub(r"\]\([^)]*\)", "", text))) for text in texts]
        assert index == 0 or numbers[0] == numbers[1], texts[0]
        cells = [[line.count("|") for line in text.splitlines() if line.startswith("|")] for text in texts]
        assert cells[0] == cells[1], texts[0]


@PAIRS
def test_links_lead_to_the_same_files(chinese, english):
    """Links to other Chinese pages have no English counterpart, but must lead to a file."""
    assert targets(chinese) == targets(english)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", BLOCK.sub("", text_of(chinese)))
    assert [link for link in links if not ((ROOT / chinese).parent / link).exists()] == []


@pytest.mark.parametrize("name", [name for name in ENGLISH if name.startswith("profiles")])
def test_profiles_quote_the_same_sentences(name):
    """The quotations of the documents are Chinese in both editions; the English one also translates them."""
    quotes = [re.findall(r"^> .*?(「.*」)", text_of(path), re.MULTILINE) for path in (f"docs/zh/{name}", ENGLISH[name])]
    assert quotes[0] == quotes[1]


def test_glossary_has_every_term():
    """The first cell of each Chinese row starts with the term of the English row."""
    rows = [re.findall(r"^\| (.+?) \|", text_of(path), re.MULTILINE)[1:] for path in ("docs/zh/glossary.md", "docs/glossary.md")]
    assert [chinese for chinese, english in zip_longest(*rows, fillvalue="") if not chinese.startswith(english)] == []
