"""Clauses of the specification, read from ampscale_conformance/spec in the wheel or from spec/ in a checkout."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_CLAUSE = re.compile(r"^### (?P<id>.+?) · (?P<level>.+?)\n(?P<body>.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_SOURCE = re.compile(r"^> Source: (.+)$", re.MULTILINE)
# The kind of a source by its first word. A source with another first word is a document.
_KIND = {"observed": "observed", "reported": "observed", "decision": "decision"}


@dataclass(frozen=True)
class Clause:
    """Clause of the specification: one requirement."""

    id: str
    level: str  # must, should, may or variant
    text: str
    sources: tuple[str, ...]
    file: Path

    @property
    def sentence(self) -> str:
        """Return the first paragraph on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())

    @property
    def basis(self) -> str:
        """
        Return the kind of the first source: "document", "observed" (in frameworks, or reported by users), or "decision".

        The violation of a decision is a difference from this specification, which need not be a defect.
        """
        return _KIND.get(self.sources[0].split()[0].rstrip(":"), "document")

    @property
    def chapter(self) -> str:
        """Return the chapter's name without its number: "machine" for 30-machine.md."""
        return self.file.stem.rpartition("-")[2]


def spec_folder() -> Path:
    """Return the folder of the specification; raise a FileNotFoundError if the package was installed without it."""
    package = Path(__file__).parents[1]
    for folder in (package / "spec", package.parents[2] / "spec"):
        if (folder / "30-machine.md").exists():
            return folder
    raise FileNotFoundError(
        f"the specification is neither in {package / 'spec'} nor beside the sources; reinstall ampscale-conformance"
    )


def chapter_files() -> list[Path]:
    """Return the files of the chapters and the profiles, in reading order."""
    return [*sorted(spec_folder().glob("[0-9]*.md")), *sorted(spec_folder().glob("profiles/*.md"))]


def clauses_in(file: Path) -> list[Clause]:
    """Return the clauses of one file, in its order."""
    return [_clause(match, file) for match in _CLAUSE.finditer(file.read_text("utf-8"))]


@cache
def clauses() -> dict[str, Clause]:
    """Return all clauses of all chapters and profiles by id."""
    return {clause.id: clause for file in chapter_files() for clause in clauses_in(file)}


def _clause(match: re.Match[str], file: Path) -> Clause:
    text = "\n".join(line for line in match["body"].splitlines() if not line.startswith(">"))
    return Clause(match["id"], match["level"], text.strip(), tuple(_SOURCE.findall(match["body"])), file)
