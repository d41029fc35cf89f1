"""The page in a real browser: from a file without a network, its matrix and its filters."""

import json

import pytest
from reports import browsing, made

# --- from a file, without a network ---


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
    asked = {address.partition("#")[0] for address in browser.requests()} - {"about:blank"}
    assert asked == {file.as_uri()}


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
    assert browser.ask("$$('thead .name').map((name) => name.textContent)")[2] == made.HOSTILE
    assert browser.ask("$$('img').length") == 0
    browser.click("tr:nth-child(2) td:nth-child(4) button")
    said = browser.ask("$('#details p.message').textContent.toWellFormed()")
    assert said.endswith("no <update> & no ]]> here: \x00\x1b[31m � `````` |</script><!--")


# --- the matrix ---


def test_the_matrix_has_a_cell_for_each_case_and_implementation(browser, few, many):
    """What is in no report of an implementation is told as such."""
    browser.show(many)
    assert (browser.ask("$$('tr.case').length"), browser.ask("$$('td.cell button').length")) == (130, 3900)
    assert browser.ask("$$('thead th').length") == 31
    browser.show(few)
    assert browser.ask("$$('tr.case').length") == 17 + 9
    assert browser.ask("$$('td.absent').length") == 5 * 9 + 17
    assert browser.ask("$('td.absent').textContent") == "not in this report"


def test_a_verdict_is_told_by_symbol_and_word(browser, few):
    """Nine verdicts have nine symbols and nine words, in the matrix and in the legend; colour comes on top."""
    browser.show(few)
    row = "$$('tr.case').map((row) => row.cells[6].querySelector('button')).filter(Boolean)"
    assert len(set(browser.ask(f"{row}.map((button) => button.querySelector('use').getAttribute('href'))"))) == 9
    assert len(set(browser.ask(f"{row}.map((button) => button.querySelector('.word').textContent)"))) == 9
    legend = browser.ask(
        "$$('#verdicts .badge').map((badge) => [badge.querySelector('use').getAttribute('href'), badge.textContent])"
    )
    assert sorted(word for _, word in legend) == sorted(str(verdict) for verdict in made.Verdict)
    assert all(symbol == f"#v-{word}" for symbol, word in legend)
    assert browser.ask("$$('#verdicts use').every((use) => $(use.getAttribute('href')).children.length > 0)")


def test_a_cell_says_what_it_is(browser, few):
    """Verdict, case and implementation, for those who do not see it."""
    browser.show(few)
    assert (
        browser.ask("$(arguments[0]).getAttribute('aria-label')", browsing.cell("walks-gggg", "late-1.0"))
        == "fail: walks gggg, late 1.0"
    )
    assert browser.ask("$('table').getAttribute('role')") == "grid"


def test_totals_leave_out_what_is_unsupported(browser, few):
    """An implementation that was asked nothing has no fraction, and its unsupported cases stand beside it."""
    browser.show(few)
    totals = browser.ask(
        "[...$('tbody.all tr').cells].slice(1).map((cell) => [cell.title, cell.querySelector('.fraction').textContent])"
    )
    assert totals == [
        ["17 of 17 passed", "17/17"],
        ["9 of 17 passed, 8 fail", "9/17"],
        ["1 of 17 passed, 16 error", "1/17"],
        ["2 of 17 passed, 15 fail", "2/17"],
        ["17 unsupported", "–"],
        ["1 of 8 passed, 1 fail, 1 error, 1 xfail, 1 xpass, 1 timeout, 1 crash, 1 protocol-error; 1 unsupported", "1/8"],
    ]
    machine = browser.ask("[...$('[data-chapter=machine]').closest('tr').cells].slice(1, 3).map((cell) => cell.title)")
    assert machine == ["16 of 16 passed", "8 of 16 passed, 8 fail"]
    assert browser.ask("$$('tbody.all .share')[4].children.length") == 1
    assert browser.ask("$('tbody.all td:nth-child(6) .share i').className") == "unsupported"


def test_one_report_shows_its_messages(browser, one):
    """With one implementation there is room for them."""
    browser.show(one)
    assert browser.ask("$('h1').textContent") == "late 1.0"
    assert browser.ask(
        "$(arguments[0]).querySelector('.message').textContent", browsing.cell("walks-gggg", "late-1.0")
    ).startswith("after step 2: wanted")
    assert browser.ask(
        "$(arguments[0]).querySelector('.message').textContent", browsing.cell("trees-are-scaled", "late-1.0")
    ) == ("claims level 0, and this is level 1")


def test_the_head_says_what_when_and_how_much(browser, many):
    """The suite's version, the date, and how many there are of each."""
    browser.show(many)
    facts = dict(browser.ask("$$('#facts > div').map((fact) => [...fact.children].map((part) => part.textContent))"))
    data = json.loads(browser.ask("$('#matrix-data').textContent"))
    assert facts == {
        "Suite": f"ampscale {data['ampscale']}",
        "Date": data["date"],
        "Implementations": "30",
        "Cases": "130",
        "Clauses": str(len(data["clauses"])),
    }


# --- filters ---


def test_filters_choose_cases(browser, few):
    """By chapter, level, words and verdict; the status says how many are left."""
    browser.show(few)
    every = browsing.facts(browser)
    browsing.choose(browser, "chapter", "scaling")
    assert browsing.facts(browser) == ["trees-are-scaled"]
    assert browser.ask("$('#status').textContent") == "1 of 26 cases, 6 implementations."
    browsing.choose(browser, "chapter", "")
    browsing.choose(browser, "level", "1")
    assert set(browsing.facts(browser)) == {"trees-are-scaled", "case-fail", "case-timeout"}
    browsing.choose(browser, "text", "A LEAF is lost")
    assert browsing.facts(browser) == ["trees-are-scaled"]
    browsing.choose(browser, "level", "")
    browsing.choose(browser, "text", "放大")
    assert browsing.facts(browser) == [case for case in every if case == "walks-ggog"]
    browsing.choose(browser, "text", "no such words")
    assert browser.ask("$('#matrix').textContent") == "No case fits these filters."
    browser.click("#clear")
    assert browsing.facts(browser) == every


def test_the_verdict_filter_keeps_rows_that_have_one(browser, few):
    """Of those chosen, with any implementation that is shown."""
    browser.show(few)
    browser.click("[name=verdict][value=crash]")
    assert browsing.facts(browser) == ["case-crash"]
    browser.click("[name=verdict][value=xfail]")
    assert browsing.facts(browser) == ["case-xfail", "case-crash"]
    browser.show(few, "#verdict=fail&only=late-1.0")
    assert len(browsing.facts(browser)) == 8


def test_the_implementation_filter_keeps_columns(browser, few):
    """And says how many."""
    browser.show(few)
    browser.click("#implementations summary")
    browser.click("[name=only][value='late-1.0']")
    browser.click("[name=only][value='right-1.0']")
    assert browser.ask("$$('thead .name').map((name) => name.textContent)") == ["right", "late"]
    assert browser.ask("$('#chosen').textContent") == "2 of 6"
    browser.press("escape")
    assert not browser.ask("$('#implementations').open")
    browser.click("[name=differ]")
    assert len(browsing.facts(browser)) == 8
    assert "walks-oooo" not in browsing.facts(browser)


def test_filters_are_in_the_address(browser, few):
    """What one sees can be sent to another."""
    browser.show(few)
    browsing.choose(browser, "chapter", "machine")
    browser.click("[name=verdict][value=fail]")
    browser.click("[name=differ]")
    address, seen = browser.ask("location.hash"), browsing.facts(browser)
    assert 0 < len(seen) < 26
    browser.show(few, address)
    assert browsing.facts(browser) == seen
    assert browser.ask("$('[name=verdict][value=fail]').checked && $('[name=differ]').checked")


def test_chapters_fold(browser, few):
    """To their totals, one by one or all at once."""
    browser.show(few)
    browser.click("[data-chapter=machine]")
    assert browsing.facts(browser) == ["trees-are-scaled"]
    assert browser.ask("$('[data-chapter=machine]').getAttribute('aria-expanded')") == "false"
    assert browser.ask("document.activeElement.dataset.chapter") == "machine"
    browser.click("#fold")
    assert len(browsing.facts(browser)) == 26
    browser.click("#fold")
    assert browsing.facts(browser) == []
