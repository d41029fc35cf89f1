"""The page in a real browser: from a file without a network, its matrix and its filters."""

import json

import pytest
from reports import browsing, made

CELL = browsing.cell("walks-gggg", "late-1.0")


@pytest.mark.parametrize("which", ["one", "few", "many"])
def test_it_opens_from_a_file_without_errors_or_requests(browser, which, request):
    """Nothing is asked for but the file itself, also when details are opened, and the console is silent."""
    file = request.getfixturevalue(which)
    browser.errors(), browser.requests()
    browser.show(file)
    browser.press("tab")
    browser.click("td.cell button")
    assert browser.ask("$('dialog').open")
    assert browser.errors() == []
    assert {address.partition("#")[0] for address in browser.requests()} - {"about:blank"} == {file.as_uri()}


def test_a_committed_page_is_shown_with_its_style(browser, committed):
    """Nothing of it is stopped by its own policy: the style is applied, and the script has drawn the matrix."""
    browser.errors()
    browser.show(committed)
    assert browser.errors() == []
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"
    assert browser.ask("$$('td.cell button').length") > 1000


def test_the_policy_stops_what_is_not_its_own(browser, few):
    """A script, an image and a request that someone brought into the page come to nothing."""
    browser.show(few)
    browser.requests()
    browser.driver.execute_script(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = true'}));"
        "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}));"
        "fetch('http://127.0.0.1:9/').catch(() => {})"
    )
    assert browser.ask("window.broken ?? null") is None
    assert browser.requests() == []
    assert len([line for line in browser.errors() if "Content Security Policy" in line]) >= 3


def test_words_of_a_report_stay_words(browser, few):
    """A name and a message with HTML in them are shown as they are."""
    browser.show(few)
    assert browser.ask("texts('thead b')")[2] == made.HOSTILE
    assert browser.ask("$$('img').length") == 0
    browser.click("tr:nth-child(2) td:nth-child(4) button")
    words = "no <update> & no ]]> here: \x00\x1b[31m � `````` |</script><!--"
    assert browser.ask("$('#details p.message').textContent.toWellFormed()").endswith(words)
    assert browser.ask("$('li .overflow').textContent.toWellFormed()") == f"raised RuntimeError: {words}"


# --- the matrix ---


def test_many_implementations_have_a_cell_for_each_case(browser, many):
    """And the head says what, when and how much."""
    browser.show(many)
    assert browser.ask("['tr.case', 'td.cell button', 'thead th'].map((css) => $$(css).length)") == [130, 3900, 31]
    data = json.loads(browser.ask("$('#matrix-data').textContent"))
    values = [f"ampscale {data['ampscale']}", data["date"], "30", "130", str(len(data["clauses"]))]
    names = ["Suite", "Date", "Implementations", "Cases", "Clauses"]
    assert browser.ask("[texts('#facts dt'), texts('#facts dd')]") == [names, values]


def test_one_report_shows_its_messages(browser, one):
    """With one implementation there is room for them, and nothing to choose among."""
    browser.show(one)
    assert browser.ask("$('h1').textContent") == "late 1.0"
    assert browser.ask("$('#lede').textContent").endswith(": 8 of 16 passed, 8 fail; 1 unsupported.")
    assert browser.ask("$(arguments[0]).textContent", CELL).startswith("failafter step 2: expected")
    trees = browsing.cell("trees-are-scaled", "late-1.0")
    assert browser.ask("$(arguments[0]).textContent", trees) == "unsupportedclaims level 0; requires level 1"
    assert browser.ask("$$('.several').map((choice) => choice.checkVisibility())") == [False, False]


def test_a_cell_says_what_it_is(browser, few):
    """By nine symbols and nine words, as in the legend, colour on top; and for those who do not see it."""
    browser.stay(few)
    assert browser.ask("$('table').getAttribute('role')") == "grid"
    assert browser.ask("$(arguments[0]).getAttribute('aria-label')", CELL) == "fail: walks gggg, late 1.0"
    assert browser.ask("$$('tr.case').length") == 17 + 9
    assert browser.ask("texts('td.absent')") == ["not in this report"] * (5 * 9 + 17)
    row = "$$('tr.case').map((row) => row.cells[6].querySelector('button')).filter(Boolean)"
    symbol = "querySelector('.icon path').getAttribute('d')"
    cells = browser.ask(f"{row}.map((button) => [button.{symbol}, button.querySelector('.word').textContent])")
    legend = browser.ask(f"$$('#verdicts .badge').map((badge) => [badge.{symbol}, badge.textContent])")
    assert [len(set(column)) for column in zip(*cells, strict=True)] == [9, 9]
    assert [word for _, word in legend] == [str(verdict) for verdict in made.Verdict]
    assert {symbol for symbol, _ in legend} == {symbol for symbol, _ in cells}


def test_totals_leave_out_what_is_unsupported(browser, few):
    """An implementation that was asked nothing has no fraction, and its unsupported cases stand beside it."""
    browser.stay(few)
    every = "1 of 8 passed, 1 fail, 1 error, 1 xfail, 1 xpass, 1 timeout, 1 crash, 1 protocol-error; 1 unsupported"
    words = ["17 of 17 passed", "9 of 17 passed, 8 fail", "1 of 17 passed, 16 error", "2 of 17 passed, 15 fail", "17 unsupported"]
    assert browser.ask("$$('tbody.all td').map((cell) => cell.title)") == [*words, every]
    assert browser.ask("texts('tbody.all td')") == ["17/17", "9/17", "1/17", "2/17", "–17 unsup.", "1/81 unsup."]
    machine = browser.ask("[...$('[data-chapter=machine]').closest('tr').cells].slice(1, 3).map((cell) => cell.ariaLabel)")
    assert machine == ["16 of 16 passed", "8 of 16 passed, 8 fail"]
    shares = "$$('tbody.all .share').map((bar) => [...bar.children].map((part) => part.className + part.style.flexGrow))"
    assert browser.ask(shares)[3:] == [["pass2", "bad15"], ["unsupported17"], ["pass1", "bad6", "xfail1", "unsupported1"]]


# --- filters ---


def test_filters_choose_cases(browser, few):
    """By chapter, level, words and verdict; the status says how many are left."""
    browser.show(few)
    every = browser.facts()
    browser.choose("[name=chapter]", "scaling")
    assert browser.facts() == ["trees-are-scaled"]
    assert browser.ask("$('#status').textContent") == "1 of 26 cases, 6 implementations."
    browser.choose("[name=chapter]", "")
    browser.choose("[name=level]", "1")
    assert set(browser.facts()) == {"trees-are-scaled", "case-fail", "case-timeout"}
    browser.choose("[name=text]", "A LEAF is lost")
    assert browser.facts() == ["trees-are-scaled"]
    browser.choose("[name=level]", "")
    browser.choose("[name=text]", "放大")
    assert browser.facts() == ["walks-ggog"]
    browser.choose("[name=text]", "no such words")
    assert browser.ask("$('#matrix').textContent") == "No case matches these filters."
    browser.click("#clear")
    assert browser.facts() == every
    browser.click("[name=verdict][value=crash]")
    assert browser.facts() == ["case-crash"]
    browser.click("[name=verdict][value=xfail]")
    assert browser.facts() == ["case-xfail", "case-crash"]


def test_the_implementation_filter_keeps_columns(browser, few):
    """And says how many; other filters ask those that are shown."""
    browser.show(few)
    browser.click("[popovertarget=implementations]")
    browser.click("[name=only][value='late-1.0']")
    browser.click("[name=only][value='right-1.0']")
    assert browser.ask("texts('thead b')") == ["right", "late"]
    assert browser.ask("$('#chosen').textContent") == "2 of 6"
    browser.press("escape")
    assert not browser.ask("$('#implementations').checkVisibility()")
    browser.click("[name=differ]")
    assert len(browser.facts()) == 8
    assert "walks-oooo" not in browser.facts()
    browser.show(few, "#verdict=fail&only=late-1.0")
    assert len(browser.facts()) == 8


def test_filters_are_in_the_address(browser, few):
    """What one sees can be sent to another."""
    browser.show(few)
    browser.choose("[name=chapter]", "machine")
    for field in ("[name=verdict][value=fail]", "[name=verdict][value=error]", "[name=differ]"):
        browser.click(field)
    address, seen = browser.ask("location.hash"), browser.facts()
    assert 0 < len(seen) < 26
    browser.show(few, address)
    assert browser.facts() == seen
    assert browser.ask("[$('[name=chapter]').value, ...$$('input:checked').map((field) => field.value)]") == [
        *("machine", "1", "fail", "error"),
    ]


def test_chapters_fold(browser, few):
    """To their totals, one by one or all at once."""
    browser.show(few)
    browser.click("[data-chapter=machine]")
    assert browser.facts() == ["trees-are-scaled"]
    assert browser.ask("$('[data-chapter=machine]').getAttribute('aria-expanded')") == "false"
    assert browser.ask("document.activeElement.dataset.chapter") == "machine"
    browser.click("#fold")
    assert len(browser.facts()) == 26
    browser.click("#fold")
    assert browser.facts() == []
