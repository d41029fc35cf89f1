"""Paths of the repository's files on the site, and the order of its pages."""

import re
from collections.abc import Iterable
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

ROOT = Path(__file__).parents[2]
INDEX = "docs/README.md"  # its sections and links are the navigation of the site
MOVED = {INDEX: "contents.md", "CHANGELOG.md": "changes.md"}
COPIED = (".html", ".json", ".png", ".svg")  # files that are copied to the site unchanged
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def read_pages() -> tuple[dict[str, str], set[str]]:
    """Return the texts of the repository's Markdown pages and of the pages that these link to, by path; and all linked files."""
    patterns = ("docs/**/*.md", "spec/**/*.md", "conformance/docs/*.md", "conformance/README.md", "*.md")
    paths = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)}
    texts: dict[str, str] = {}
    linked: set[str] = set()
    while missing := sorted(paths - texts.keys()):
        texts |= {path: (ROOT / path).read_text("utf-8") for path in missing}
        linked |= {target for path in missing for target in links(path, texts[path])}
        paths |= {target for target in linked if target.endswith(".md") and (ROOT / target).exists()}
    return texts, linked


def site_path(path: str) -> str:
    """Return the path that a file of the repository has in the sources of the site. A file of code becomes a Markdown page."""
    if path in MOVED:
        return MOVED[path]
    if re.fullmatch(r"spec/vectors/(?!schema)\w+\.json", path):
        return path.removesuffix("json") + "md"
    if not path.endswith((".md", *COPIED)):
        return f"source/{path}.md"
    path = re.sub(r"\bREADME\.md$", "index.md", path)
    return path.replace("docs/", "", 1) if path.startswith(("docs/", "conformance/docs/")) else path


def links(path: str, text: str) -> list[str]:
    """Return the files of the repository that a page links to."""
    return [_target(path, match[1]) for part in _CODE.split(text)[::2] for match in _LINK.finditer(part)]


def with_site_links(path: str, text: str) -> str:
    """Return the text of a page with its relative links changed to those of the site."""

    def change(match: re.Match[str]) -> str:
        target = site_path(_target(path, match[1]))
        return f"]({relpath(target, dirname(site_path(path)) or '.')}{match[2] or ''})"

    parts = _CODE.split(text)
    parts[::2] = [_as_html(_LINK.sub(change, part)) for part in parts[::2]]
    return "".join(parts)


def navigation() -> dict[str, dict[str, str]]:
    """Return the pages that each section of the index lists: for each section heading, the titles by file."""
    sections = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", (ROOT / INDEX).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    items = {title: re.findall(r"^- \[([^\]]*)\]\(([^)#\s]+)", body, re.MULTILINE) for title, body in sections}
    return {title: {_target(INDEX, link): text for text, link in entries} for title, entries in items.items() if entries}


def unlisted(paths: Iterable[str]) -> list[str]:
    """Return the pages that the index does not list, except the specification's: its chapters have an index of their own."""
    listed = {target for entries in navigation().values() for target in entries} | {"README.md", INDEX}
    return [path for path in paths if path not in listed and not path.startswith("spec/")]


def _target(path: str, link: str) -> str:
    """Return the file of the repository that a link of a page leads to."""
    target = normpath(join(dirname(path), link))
    return f"{target}/README.md" if (ROOT / target / "README.md").exists() else target


def _as_html(text: str) -> str:
    """Return the text with links to .html and .json files as HTML, since Sphinx turns Markdown links to them into downloads."""
    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+\.(?:html|json))\)", r'<a href="\2">\1</a>', text)
