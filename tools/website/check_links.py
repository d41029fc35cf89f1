"""
Check that each link within the built site leads to a page and an anchor: `python -m website.check_links build/docs`.

Of links to other sites, only the syntax is checked: `make linkcheck` requests them.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors = {"", "main-content"}  # the top of the page, and the target of the skip link of the theme
        self.links: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Add the ids and links of an element."""
        values = dict(attributes)
        self.anchors.add(values.get("id") or "")
        link = values.get("href") or values.get("src") or ""
        if link and not link.startswith("data:"):
            self.links.add(link)


def main(folder: Path) -> int:
    """Print the broken links and their number; return 1 if there are any."""
    pages = {file: Page(file) for file in folder.rglob("*.html") if "_static" not in file.parts}
    links = [(file, link) for file, page in pages.items() for link in page.links]
    broken = [f"{file.relative_to(folder)}: {link}" for file, link in links if not _is_valid(file, link, pages)]
    print(*sorted(broken), f"{len(pages)} pages, {len(links)} links, {len(broken)} broken", sep="\n")
    return int(bool(broken))


def _is_valid(file: Path, link: str, pages: dict[Path, Page]) -> bool:
    if urlsplit(link).netloc:
        return re.fullmatch(r"https?://[\w.-]+\.[a-z]+(/[^\s<>\"`]*)?", link) is not None
    path, anchor = urlsplit(link).path, unquote(urlsplit(link).fragment)
    target = (file.parent / unquote(path)).resolve() if path else file
    return anchor in pages[target].anchors if target in pages and anchor else target.is_file()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
