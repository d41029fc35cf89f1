"""Write docs/pains.md: reports on loss scalers, and the tests that show what ampscale does. `make pains` also runs the tests."""

import sys
import tomllib
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tools" / "pains" / "pains.toml"
PAGE = ROOT / "docs" / "pains.md"
HEAD = """# Reports on loss scalers

What users of other loss scalers have reported, and the tests that show what ampscale does. `make pains` writes this page from
[pains.toml](../tools/pains/pains.toml), and runs the tests.
"""


def main() -> None:
    """Write the page; with the argument --tests, print the ids of the tests instead."""
    if sys.argv[1:] == ["--tests"]:
        sys.stdout.write("\n".join(dict.fromkeys(test for report in reports() for test in report.get("tests", ()))))
    else:
        PAGE.write_text(page(), encoding="utf-8")


def chapters() -> list[dict[str, Any]]:
    """Return the chapters of pains.toml, each with its reports."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))["chapter"]


def reports() -> list[dict[str, Any]]:
    """Return the reports of all chapters."""
    return [report for chapter in chapters() for report in chapter["report"]]


def page() -> str:
    """Return the page as Markdown."""
    numbers = count(1)
    lines = [HEAD]
    for chapter in chapters():
        lines += [f"## {chapter['title']}", "", chapter["text"], ""]
        lines += [line for report in chapter["report"] for line in _report_lines(next(numbers), report)]
    return "\n".join(lines)


def _report_lines(number: int, report: dict[str, Any]) -> Iterator[str]:
    yield f"{number}. **{report['text']}** {report.get('reason', '')}".rstrip()
    if "tests" in report:
        yield f"   <br>Tests: {'; '.join(map(_test_link, report['tests']))}."
    yield f"   <br>Reported in {'; '.join(_thread_links(report['threads']))}."
    yield ""


def _test_link(test: str) -> str:
    """Return a link to the file of *test*. Its text is the name of the test, with spaces."""
    file, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{file})"


def _thread_links(threads: list[str]) -> Iterator[str]:
    """Yield a text for each repository: its name, and links to its threads."""
    for repository, group in groupby((thread.partition("#") for thread in threads), key=lambda parts: parts[0]):
        links = (f"[#{number}](https://github.com/{repository}/issues/{number})" for _, _, number in group)
        yield f"{repository} {', '.join(links)}"


if __name__ == "__main__":
    main()
