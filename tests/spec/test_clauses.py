"""Tests of the form of the clauses, and of the citations of clauses."""

import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache

from spec.clauses import (
    LEVELS,
    ROOT,
    SPEC,
    chapter_files,
    clauses,
    ids_in,
    ids_in_docstrings,
    ids_in_marks,
    ids_in_vectors,
    prefix_of,
)
from website.clauses import vector_files

CLAUSES = clauses()
IDS = {clause.id for clause in CLAUSES}
SOURCE = re.compile(
    r"(MindSpore `mindspore\.\w+` page"
    r"|MindSpore `nn\.TrainOneStepWithLossScaleCell`, (earlier|later) page"
    r"|Paddle `paddle\.amp\.GradScaler` page"
    r'|MindFormers 1\.3\.0 `MFTrainOneStepCell` page): 「.+」( \(".+"\))?'
    r"|observed in \w.*\."
    r"|reported in [\w-]+/[\w.-]+#\d+: .+\."
    r"|decision: .+\."
)


def test_every_heading_of_level_three_is_a_clause():
    """The parser skips no malformed heading."""
    for file in chapter_files():
        headings = re.findall(r"^### (.+)$", file.read_text("utf-8"), re.MULTILINE)
        assert headings
        assert headings == [f"{clause.id} · {clause.level}" for clause in CLAUSES if clause.file == file]


def test_ids_are_unique():
    assert [name for name, count in Counter(clause.id for clause in CLAUSES).items() if count > 1] == []


def test_every_clause_is_complete():
    """A clause has the prefix of its chapter, a slug, a level and a text."""
    well_named = [clause for clause in CLAUSES if re.fullmatch(rf"{prefix_of(clause.file)}(-[a-z0-9]+)+", clause.id)]
    assert [clause.id for clause in CLAUSES if clause not in well_named or clause.level not in LEVELS or not clause.text] == []


def test_every_source_is_a_quotation_an_observation_or_a_decision():
    """Observations name the version of the framework. An issue of a project counts as an observation."""
    assert [clause.id for clause in CLAUSES if not clause.sources] == []
    sources = [(clause.id, source) for clause in CLAUSES for source in clause.sources]
    assert [(name, source) for name, source in sources if not SOURCE.fullmatch(source)] == []
    observed = [(name, source) for name, source in sources if source.startswith("observed")]
    assert [(name, source) for name, source in observed if not re.search(r"\d", source)] == []


def test_every_chinese_quotation_has_a_translation():
    """The translation follows in parentheses. A quoted signature needs none."""
    quotations = [source for clause in CLAUSES for source in clause.sources if re.search("「.*[一-鿿].*」", source)]
    assert len(quotations) > 100
    assert [source for source in quotations if not source.endswith('")')] == []


@cache
def ids_in_tests():
    """Return the clause ids that each file of test vectors and each file of tests cites."""
    vectors = {file: ids_in_vectors(file) for file in vector_files()}
    return vectors | {file: ids_in_marks(file) for file in (ROOT / "tests").rglob("*.py")}


def test_cited_clauses_exist():
    """Citations occur in prose, test vectors, docstrings and marks. A pattern with "-*" matches at least one clause."""
    cited = {file: ids_in(file.read_text("utf-8")) for file in SPEC.rglob("*.md")} | ids_in_tests()
    cited |= {file: ids_in_docstrings(file) for file in (ROOT / "src").rglob("*.py")}
    patterns = {(str(file.relative_to(ROOT)), name) for file, names in cited.items() for name in names}
    assert sorted(pair for pair in patterns if not any(fnmatchcase(id, pair[1]) for id in IDS)) == []


def test_every_must_clause_is_tested():
    """A test vector or a marked test cites each clause of level must."""
    tested = set().union(*ids_in_tests().values())
    assert [clause.id for clause in CLAUSES if clause.level == "must" and clause.id not in tested] == []
