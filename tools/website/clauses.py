"""Pages of test vectors, cases and tests, and the links between them and the clauses that they check."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from posixpath import dirname, relpath

from ampscale_conformance.cases import every_case
from ampscale_conformance.model.clauses import clauses

from .layout import ROOT, site_path

CASES, TESTS = "spec/cases.md", "spec/tests.md"
_HEADING = re.compile(r"^### (\S+) · \w+\n.*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_NOT_PROSE = re.compile(r"(^```.*?^```$|^#[^\n]*$|`[^`]*`|\[[^\]]*\]\([^)]*\)|<[^>]+>)", re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """Return the anchor of a heading by GitHub's rule."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@cache
def checks() -> dict[str, dict[str, dict[str, str]]]:
    """Return, for each clause and each kind of check, the names of the checks with their links on the site."""
    result: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for file in vector_files():
        for vector in json.loads(file.read_text("utf-8"))["cases"]:
            for clause in vector["clauses"]:
                result[clause]["vector"][f"vector {vector['id']}"] = f"spec/vectors/{file.stem}.md#{slug(vector['id'])}"
    for case in every_case():
        result[case.clause]["case"][f"case {case.id}"] = f"{CASES}#{slug(case.id)}"
    for file in test_files():
        path = file.relative_to(ROOT).as_posix()
        for name, marked in marked_tests(file):
            for clause in marked:
                result[clause]["test"][f"`{name}` in {path}"] = f"{site_path(path)}#{slug(name)}"
    return result


def vector_files() -> list[Path]:
    """Return the files of test vectors."""
    return sorted(file for file in ROOT.glob("spec/vectors/*.json") if file.stem != "schema")


@cache
def test_files() -> list[Path]:
    """Return the files with tests of clauses."""
    return [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if any(marked for _, marked in marked_tests(file))]


def marked_tests(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each test of a file, and the clauses in its marks."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            calls = (call for call in ast.walk(node) if isinstance(call, ast.Call))
            marks = (call for call in calls if ast.unparse(call.func) == "pytest.mark.clause")
            yield node.name, [item.value for mark in marks for item in ast.walk(mark) if isinstance(item, ast.Constant)]


def with_checks(path: str, text: str) -> str:
    """Return a chapter with a list of its checks after each clause, and with each source as a paragraph."""
    text = text.replace("\n> Source:", "\n>\n> Source:")
    return _HEADING.sub(lambda match: f"{match[0].rstrip()}\n\n{_list_of_checks(path, match[1])}\n\n", text)


def _list_of_checks(path: str, clause: str) -> str:
    """Return a collapsed list of links to the checks of a clause, for the page at *path*; "" if there are none."""
    kinds = checks().get(clause, {})
    if not kinds:
        return ""
    count = ", ".join(f"{len(links)} {kind if len(links) == 1 else f'{kind}s'}" for kind, links in kinds.items())
    lines = [f"- [{name}]({relpath(link, dirname(path))})" for links in kinds.values() for name, link in links.items()]
    return "\n".join(['<details class="checks">', f"<summary>{count}</summary>", "", *lines, "", "</details>"])


def with_clause_links(path: str, text: str) -> str:
    """Return the text of a page of the site with links to the clauses that its prose names; headings and code stay unchanged."""
    folder = dirname(path) or "."

    def link(match: re.Match[str]) -> str:
        clause = clauses().get(match[0])
        if clause is None:
            return match[0]
        chapter = site_path(clause.file.relative_to(ROOT).as_posix())
        return f"[{match[0]}]({relpath(chapter, folder)}#{slug(f'{clause.id} · {clause.level}')})"

    parts = _NOT_PROSE.split(text)
    parts[::2] = [re.sub(r"\b[A-Z]+(?:-[a-z0-9]+)+\b", link, part) for part in parts[::2]]
    return "".join(parts)


def cases_page() -> str:
    """Return the page of all cases, by chapter."""
    lines = ["# Cases of the suite", "", "`ampscale conform ADAPTER --case NAME` runs one case. Each checks one clause:", ""]
    chapters: dict[str, list[str]] = defaultdict(list)
    for case in every_case():
        needs = f"; requires {', '.join(sorted(case.needs))}" if case.needs else ""
        chapters[case.chapter] += [f"### {case.id}\n\n{case.clause}, level {case.level}{needs}\n\nDetects: {case.catches}\n"]
    return "\n".join([*lines, *(line for chapter, cases in chapters.items() for line in (f"## {chapter}", "", *cases))])


def vectors_page(file: Path) -> str:
    """Return the page for a file of test vectors."""
    data = json.loads(file.read_text("utf-8"))
    lines = [f"---\nnosearch: true\n---\n\n# Vectors: {file.stem}", ""]
    lines += [f'<a href="{file.name}">{file.name}</a> contains {len(data["cases"])} vectors.', ""]
    for vector in data["cases"]:
        members = ",\n".join(f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in vector.items())
        lines += [f"## {vector['id']}", "", ", ".join(vector["clauses"]), "", f"Detects: {vector.get('catches', '')}", ""]
        lines += ["```json", f"{{\n{members}\n}}", "```", ""]
    return "\n".join(lines)


def tests_page() -> str:
    """Return the page of all files with tests of clauses."""
    paths = (file.relative_to(ROOT).as_posix() for file in test_files())
    lines = [f"- [{path}]({relpath(site_path(path), 'spec')})" for path in paths]
    text = "The tests of ampscale name the clauses that they check. [Cases of the suite](cases.md) test any implementation."
    return "\n".join(["# Tests by clause", "", text, "", *lines, ""])
