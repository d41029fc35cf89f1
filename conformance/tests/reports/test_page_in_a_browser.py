"""The page in Chromium: loading without a network, the matrix, and the filters."""

import json

import pytest
from reports import browsing, samples

CELL = browsing.cell("trace-gggg", "late-1.0")


@pytest.mark.parametrize("which", ["page_of_one", "page_of_six", "page_of_thirty"])
def test_the_page_requests_the_file_only(browser, which, request):
    """Opening details requests nothing, and the console has no errors."""
    file = request.getfixturevalue(which)
    browser.discard_logs()
    browser.show(file)
    browser.press("tab")
    browser.click("td.cell button")
    assert browser.eval("$('dialog').open")
    assert browser.errors() == []
    assert {address.partition("#")[0] for address in browser.requests()} - {"about:blank"} == {file.as_uri()}


def test_a_committed_page_has_its_style_and_matrix(browser, committed):
    """The content security policy of the page blocks neither its style nor its script."""
    browser.discard_logs()
    browser.show(committed, "#")
    assert browser.errors() == []
    assert browser.eval("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"
    assert browser.eval("$$('td.cell button').length") > 1000
    assert browser.eval("$('.cell.fail').getBoundingClientRect().bottom") < 720  # failures are on the first screen


def test_the_policy_blocks_injected_content(browser, page_of_six):
    """The injected content is a script, an image and a request."""
    browser.show(page_of_six)
    browser.discard_logs()
    browser.driver.execute_script(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = true'}));"
        "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}));"
        "fetch('http://127.0.0.1:9/').catch(() => {})"
    )
    assert browser.eval("window.broken ?? null") is None
    assert browser.requests() == []
    assert len([line for line in browser.errors() if "Content Security Policy" in line]) >= 3


def test_html_in_a_report_is_shown_as_text(browser, page_of_six):
    """A name and a message contain HTML."""
    browser.show(page_of_six)
    assert browser.eval("texts('thead b')")[2] == samples.HOSTILE
    assert browser.eval("$$('img').length") == 0
    browser.click("tr:nth-child(2) td:nth-child(4) button")
    message = "no <update> & no ]]> here: \x00\x1b[31m � `````` |</script><!--"
    assert browser.eval("$('#details p.message').textContent.toWellFormed()").endswith(message)
    assert browser.eval("$('li .overflow').textContent.toWellFormed()") == f"raised RuntimeError: {message}"


# --- the matrix ---


def test_the_matrix_has_a_cell_for_each_case_and_implementation(browser, page_of_thirty):
    browser.show(page_of_thirty)
    assert browser.eval("['tr.case', 'td.cell button', 'thead th'].map((css) => $$(css).length)") == [130, 3900, 31]


def test_the_header_has_the_versions_the_date_and_the_totals(browser, page_of_thirty):
    browser.show(page_of_thirty)
    data = json.loads(browser.eval("$('#matrix-data').textContent"))
    values = ["1.0", "1.0", data["date"], "30", "130", str(len(data["clauses"]))]
    names = ["Suite", "Spec", "Date", "Implementations", "Cases", "Clauses"]
    assert browser.eval("[texts('#facts dt'), texts('#facts dd')]") == [names, values]


def test_the_matrix_of_one_report_has_messages(browser, page_of_one):
    """The heading has the name and the totals of the implementation, and there are no filters for implementations."""
    browser.show(page_of_one)
    assert browser.eval("$('h1').textContent") == "late 1.0"
    assert browser.eval("$('#lede').textContent").endswith(": 8 of 16 passed, 8 fail; 1 unsupported.")
    assert browser.eval("$(arguments[0]).textContent", CELL).startswith("failafter step 2: expected")
    trees = browsing.cell("trees-are-scaled", "late-1.0")
    assert browser.eval("$(arguments[0]).textContent", trees) == "unsupportedclaims level 0; requires level 1"
    assert browser.eval("$$('.several').map((choice) => choice.checkVisibility())") == [False, False]


def test_a_page_first_shows_the_failures(browser, page_of_six):
    """The failures are also shown when the page is opened again after "Clear filters"."""
    browser.show(page_of_six, "#")
    shown = browser.shown_cases()
    assert browser.eval(
        "$$('tr.case').every((row) => row.querySelector('.fail, .error, .xpass, .timeout, .crash, .protocol-error'))"
    )
    browser.click("#clear")
    assert len(browser.shown_cases()) > len(shown)
    browser.show(page_of_six, "#")
    assert browser.shown_cases() == shown


def test_totals_are_those_of_all_cases(browser, page_of_one):
    """The page first shows the failures only, and "Clear filters" shows all cases."""
    browser.show(page_of_one, "#")
    failed = browser.shown_cases()
    assert browser.eval("$('tbody.all td').title").startswith(f"{16 - len(failed)} of 16 passed, {len(failed)} fail")
    browser.click("#clear")
    assert len(browser.shown_cases()) > len(failed) > 0


def test_a_message_of_several_cases_is_shown_once(browser, page):
    """The other cases refer to the first case with the message."""
    results = [samples.Result("MACHINE-skip", f"case-{n}", samples.Verdict.FAIL, "wrong" if n else "late") for n in range(4)]
    browser.show(page(samples.to_dict(samples.Report(samples.ImplementationInfo(name="x"), results))), "#")
    assert browser.eval("texts('td .message')") == ["late", "wrong (3 cases)", *["as in “case 1”"] * 2]


def test_a_cell_has_a_symbol_a_word_and_a_label(browser, page_of_six):
    """Each verdict has its own symbol and word, as in the legend. The table has the role grid."""
    browser.show_once(page_of_six)
    assert browser.eval("$('table').getAttribute('role')") == "grid"
    assert browser.eval("$(arguments[0]).getAttribute('aria-label')", CELL) == "fail: trace gggg, late 1.0"
    row = "$$('tr.case').map((row) => row.cells[6].querySelector('button')).filter(Boolean)"
    symbol = "querySelector('.icon path').getAttribute('d')"
    cells = browser.eval(f"{row}.map((button) => [button.{symbol}, button.querySelector('.word').textContent])")
    legend = browser.eval(f"$$('#verdicts .badge').map((badge) => [badge.{symbol}, badge.textContent])")
    assert [len(set(column)) for column in zip(*cells, strict=True)] == [9, 9]
    assert [word for _, word in legend] == [str(verdict) for verdict in samples.Verdict]
    assert {symbol for symbol, _ in legend} == {symbol for symbol, _ in cells}


def test_cases_that_a_report_lacks_have_a_text(browser, page_of_six):
    """Five reports have 17 cases, and one has 9 others."""
    browser.show_once(page_of_six)
    assert browser.eval("$$('tr.case').length") == 17 + 9
    assert browser.eval("texts('td.absent')") == ["not in this report"] * (5 * 9 + 17)


def test_totals_exclude_unsupported_cases(browser, page_of_six):
    """Unsupported cases are counted separately; without other cases there is no fraction."""
    browser.show_once(page_of_six)
    every = "1 of 8 passed, 1 fail, 1 error, 1 xfail, 1 xpass, 1 timeout, 1 crash, 1 protocol-error; 1 unsupported"
    titles = [
        "17 of 17 passed",
        "9 of 17 passed, 8 fail",
        "1 of 17 passed, 16 error",
        "2 of 17 passed, 15 fail",
        "17 unsupported",
    ]
    assert browser.eval("$$('tbody.all td').map((cell) => cell.title)") == [*titles, every]
    assert browser.eval("texts('tbody.all td')") == ["17/17", "9/17", "1/17", "2/17", "–17 unsup.", "1/81 unsup."]
    machine = browser.eval("[...$('[data-chapter=machine]').closest('tr').cells].slice(1, 3).map((cell) => cell.ariaLabel)")
    assert machine == ["16 of 16 passed", "8 of 16 passed, 8 fail"]
    shares = "$$('tbody.all .share').map((bar) => [...bar.children].map((part) => part.className + part.style.flexGrow))"
    assert browser.eval(shares)[3:] == [["pass2", "bad15"], ["unsupported17"], ["pass1", "bad6", "xfail1", "unsupported1"]]


# --- filters ---


def test_filters_select_cases(browser, page_of_six):
    """Cases are selected by chapter, level, text and verdict. The status has the number of cases."""
    browser.show(page_of_six)
    every = browser.shown_cases()
    browser.choose("[name=chapter]", "scaling")
    assert browser.shown_cases() == ["trees-are-scaled"]
    assert browser.eval("$('#status').textContent") == "1 of 26 cases, 6 implementations."
    browser.choose("[name=chapter]", "")
    browser.choose("[name=level]", "1")
    assert set(browser.shown_cases()) == {"trees-are-scaled", "case-fail", "case-timeout"}
    browser.choose("[name=text]", "A LEAF is lost")
    assert browser.shown_cases() == ["trees-are-scaled"]
    browser.choose("[name=level]", "")
    browser.choose("[name=text]", "放大")
    assert browser.shown_cases() == ["trace-ggog"]
    browser.choose("[name=text]", "no such words")
    assert browser.eval("$('#matrix').textContent") == "No case matches these filters."
    browser.click("#clear")
    assert browser.shown_cases() == every
    browser.click("[name=verdict][value=crash]")
    assert browser.shown_cases() == ["case-crash"]
    browser.click("[name=verdict][value=xfail]")
    assert browser.shown_cases() == ["case-xfail", "case-crash"]


def test_the_implementation_filter_selects_columns(browser, page_of_six):
    """Other filters apply to the selected implementations, also if the address has both. Escape closes the list of them."""
    browser.show(page_of_six)
    browser.click("[popovertarget=implementations]")
    browser.click("[name=only][value='late-1.0']")
    browser.click("[name=only][value='conforming-1.0']")
    assert browser.eval("texts('thead b')") == ["conforming", "late"]
    assert browser.eval("$('#chosen').textContent") == "2 of 6"
    browser.press("escape")
    assert not browser.eval("$('#implementations').checkVisibility()")
    browser.click("[name=differ]")
    assert len(browser.shown_cases()) == 8
    assert "trace-oooo" not in browser.shown_cases()
    browser.show(page_of_six, "#verdict=fail&only=late-1.0")
    assert len(browser.shown_cases()) == 8


def test_filters_are_stored_in_the_address(browser, page_of_six):
    """The address gives the same selection again."""
    browser.show(page_of_six)
    browser.choose("[name=chapter]", "machine")
    for field in ("[name=verdict][value=fail]", "[name=verdict][value=error]", "[name=differ]"):
        browser.click(field)
    address, cases = browser.eval("location.hash"), browser.shown_cases()
    assert 0 < len(cases) < 26
    browser.show(page_of_six, address)
    assert browser.shown_cases() == cases
    assert browser.eval("[$('[name=chapter]').value, ...$$('input:checked').map((field) => field.value)]") == [
        *("machine", "1", "fail", "error"),
    ]


def test_chapters_can_be_collapsed(browser, page_of_six):
    """Chapters are collapsed one by one or all at once; their totals stay."""
    browser.show(page_of_six)
    browser.click("[data-chapter=machine]")
    assert browser.shown_cases() == ["trees-are-scaled"]
    assert browser.eval("$('[data-chapter=machine]').getAttribute('aria-expanded')") == "false"
    assert browser.eval("document.activeElement.dataset.chapter") == "machine"
    browser.click("#fold")
    assert len(browser.shown_cases()) == 26
    browser.click("#fold")
    assert browser.shown_cases() == []
