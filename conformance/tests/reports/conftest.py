"""One browser for all tests of the page, and pages for it: one report, six, and thirty."""

import pytest
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from reports import browsing, made


@pytest.fixture(scope="session")
def browser():
    opened = browsing.Browser(browsing.chromium())
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """Six implementations of which one is right."""
    adapters = [made.Right(), made.Late("late"), made.Raising(made.HOSTILE), made.Infinite("infinite"), made.Fixed("fixed")]
    reports = [made.said(made.report_of(adapter)) for adapter in adapters]
    reports.append(made.said(made.every_verdict(snippet=made.SNIPPET, reproduced=True)))
    return written(tmp_path_factory, matrix.of(reports))


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    """One report."""
    return written(tmp_path_factory, matrix.of([made.said(made.report_of(made.Late("late", level=0)))]))


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """Thirty implementations and 130 cases; each six have the same answers, for the sake of time."""
    reports = [*made.many(6)] * 5
    named = [
        report | {"implementation": {**report["implementation"], "version": str(place)}} for place, report in enumerate(reports)
    ]
    return written(tmp_path_factory, matrix.of(named))


def written(folders, found):
    file = folders.mktemp("page") / "page.html"
    file.write_text(render.html_of(found), "utf-8")
    return file
