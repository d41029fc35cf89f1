"""Write the sources of the site into a folder: `python -m website build/site`. Sphinx then builds it with docs/conf.py."""

import shutil
import sys
from pathlib import Path

from ampscale_conformance.model.clauses import chapter_files

from . import clauses, layout, pages
from .layout import ROOT, site_path

GENERATED = {
    "Introduction": ["contents.md"],
    "Tools": ["commands/index.md"],
    "Reference": ["presets.md"],
    "Specification": ["conformance/matrix.md"],
}
REPORTS = "conformance/upstream/"


def main(folder: Path) -> None:
    """Write all pages, and copy the pictures and other files that they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    sources, linked = layout.read_pages()
    linked |= {file.relative_to(ROOT).as_posix() for file in [*clauses.test_files(), *clauses.vector_files()]}
    others = layout.unlisted(sources)
    texts = {site_path(path): page(path, text, others) for path, text in sources.items()} | _generated()
    texts |= {site_path(path): pages.source_page(path) for path in linked if site_path(path).startswith("source/")}
    texts = {path: clauses.with_clause_links(path, text) for path, text in texts.items()}
    texts |= {f"_files/{path}": text for path, text in pages.badges().items()}
    for path, text in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    for path in sorted(linked):
        if path.endswith(layout.COPIED):
            is_picture = path.endswith((".png", ".svg"))
            _copy(path, folder if is_picture else folder / "_files")


def page(path: str, text: str, others: list[str]) -> str:
    """Return a page of the repository as a page of the site; *others* are the pages that the index does not list."""
    text = layout.with_site_links(path, pages.api_page(text) if path == "docs/api.md" else text)
    if path == "README.md":
        trees = {
            section: [f"{title} <{site_path(target)}>" for target, title in entries.items()] + GENERATED.get(section, [])
            for section, entries in layout.navigation().items()
        }
        trees["Project"] += [site_path(other) for other in others if not _is_report(other)]
        return text + "".join(_toctree(entries, section) for section, entries in trees.items())
    if path == f"{REPORTS}README.md":
        return text + _toctree([other.removeprefix(REPORTS) for other in others if _is_report(other)])
    if path == "spec/README.md":
        chapters = [file.relative_to(ROOT / "spec").as_posix() for file in chapter_files()]
        return text + _toctree([*chapters, "vectors/index.md", "cases.md", "tests.md", "conformance/protocol.md"])
    if path == "spec/vectors/README.md":
        return text + _toctree([f"{file.stem}.md" for file in clauses.vector_files()])
    return clauses.with_checks(path, text) if path.startswith("spec/") else text


def _is_report(path: str) -> bool:
    return path.startswith(REPORTS) and path.count("/") > REPORTS.count("/")


def _generated() -> dict[str, str]:
    """Return the pages that the repository does not contain."""
    commands = pages.command_pages()
    commands["commands/index.md"] += _toctree(sorted(path.partition("/")[2] for path in commands if "index" not in path))
    vectors = {f"spec/vectors/{file.stem}.md": clauses.vectors_page(file) for file in clauses.vector_files()}
    others = {"presets.md": pages.presets_page(), "conformance/matrix.md": pages.matrix_page()}
    return {**commands, **vectors, **others, clauses.CASES: clauses.cases_page(), clauses.TESTS: clauses.tests_page()}


def _toctree(entries: list[str], caption: str = "") -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *entries, "```", ""])


def _copy(path: str, folder: Path) -> None:
    target = (folder / site_path(path)).with_suffix(Path(path).suffix)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / path, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
