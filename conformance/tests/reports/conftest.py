"""Browser for all tests of the page, and pages with one, six and thirty reports."""

import pytest
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from reports import browsing, samples


@pytest.fixture(scope="session")
def browser():
    """Start Chromium once."""
    driver = browsing.chromium()
    yield browsing.Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Return a function that writes the page of some reports and returns its path."""

    def write(*reports):
        file = tmp_path_factory.mktemp("page") / "page.html"
        file.write_text(render.html_of(matrix.of(reports)), "utf-8")
        return file

    return write


@pytest.fixture(scope="session")
def page_of_six(page):
    """Return the page of six implementations, of which one conforms."""
    faulty = [samples.Late("late"), samples.Raising(samples.HOSTILE), samples.Infinite("infinite"), samples.Fixed("fixed")]
    every_verdict = samples.every_verdict(snippet=samples.SNIPPET, reproduced=True)
    return page(*map(samples.report_dict, [samples.Conforming(), *faulty]), samples.to_dict(every_verdict))


@pytest.fixture(scope="session")
def page_of_one(page):
    """Return the page of one report."""
    return page(samples.report_dict(samples.Late("late", level=0)))


@pytest.fixture(scope="session")
def page_of_thirty(page):
    """Return the page of thirty implementations and 130 cases."""
    return page(*samples.thirty_reports())


@pytest.fixture(scope="session", params=samples.COMMITTED, ids=lambda file: file.name)
def committed(request):
    """Return a page of the repository; the test runs once for each."""
    return request.param
