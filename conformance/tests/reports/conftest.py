"""One browser for all tests of the page, and pages for it: one report, six, and thirty."""

import pytest
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from reports import browsing, made


@pytest.fixture(scope="session")
def browser():
    driver = browsing.chromium()
    yield browsing.Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Writes the page of some reports."""

    def write(*reports):
        file = tmp_path_factory.mktemp("page") / "page.html"
        file.write_text(render.html_of(matrix.of(reports)), "utf-8")
        return file

    return write


@pytest.fixture(scope="session")
def few(page):
    """Six implementations of which one is right."""
    adapters = [made.Right(), made.Late("late"), made.Raising(made.HOSTILE), made.Infinite("infinite"), made.Fixed("fixed")]
    reports = [*map(made.report_of, adapters), made.every_verdict(snippet=made.SNIPPET, reproduced=True)]
    return page(*map(made.said, reports))


@pytest.fixture(scope="session")
def one(page):
    """One report."""
    return page(made.said(made.report_of(made.Late("late", level=0))))


@pytest.fixture(scope="session")
def many(page):
    """Thirty implementations and 130 cases."""
    return page(*made.many())


@pytest.fixture(scope="session", params=made.COMMITTED, ids=lambda file: file.name)
def committed(request):
    """Each page that is committed."""
    return request.param
