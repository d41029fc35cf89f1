"""The page in a real browser: by hand, by keyboard, wide and narrow, light and dark, on paper; and without a network."""

import json
import struct

import numpy as np
import pytest
from conformance.reports import browsing, made

from ampscale.conformance.clauses import clauses
from ampscale.conformance.oracle.floats import decode
from ampscale.conformance.reports import matrix, page
from ampscale.conformance.reports.tables import short

SNIPPET = "scale = 1024.0\nprint(scale * 2)  # <&>\n"
LATE = "#case=walks-gggg&implementation=late-1.0"
CLOSED = "!$('dialog').open && opened === null"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser():
    opened = browsing.Browser(browsing.chromium())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Six implementations of which one is right."""
    adapters = [made.Right(), made.Late("late"), made.Raising(HOSTILE), made.Infinite("infinite"), made.Fixed("fixed")]
    reports = [made.said(made.report_of(adapter)) for adapter in adapters]
    reports.append(made.said(made.every_verdict(snippet=SNIPPET, reproduced=True)))
    return written(tmp_path_factory, matrix.of(reports))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """One report."""
    return written(tmp_path_factory, matrix.of([made.said(made.report_of(made.Late("late", level=0)))]))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Thirty implementations and 130 cases; each six have the same answers, for the sake of time."""
    reports = [*made.many(6)] * 5
    named = [
        report | {"implementation": {**report["implementation"], "version": str(place)}} for place, report in enumerate(reports)
    ]
    return written(tmp_path_factory, matrix.of(named))


def written(folders, found):
    file = folders.mktemp("page") / "page.html"
    file.write_text(page.html_of(found), "utf-8")
    return file


def cell(case, implementation):
    return f'td [data-case="{case}"][data-implementation="{implementation}"]'


def facts(browser):
    """The cases that the matrix shows."""
    return browser.ask("$$('tr.case th button').map((button) => button.dataset.case)")


def choose(browser, name, value):
    """Sets a filter as a hand does: by an event."""
    browser.driver.execute_script(
        "const field = document.querySelector(`#filters [name=${arguments[0]}]`);"
        "field.value = arguments[1]; field.dispatchEvent(new Event('input', {bubbles: true}))",
        name,
        value,
    )


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
    assert browser.ask("$$('thead .name').map((name) => name.textContent)")[2] == HOSTILE
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
        browser.ask("$(arguments[0]).getAttribute('aria-label')", cell("walks-gggg", "late-1.0")) == "fail: walks gggg, late 1.0"
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
    assert browser.ask("$(arguments[0]).querySelector('.message').textContent", cell("walks-gggg", "late-1.0")).startswith(
        "after step 2: wanted"
    )
    assert browser.ask("$(arguments[0]).querySelector('.message').textContent", cell("trees-are-scaled", "late-1.0")) == (
        "claims level 0, and this is level 1"
    )


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
    every = facts(browser)
    choose(browser, "chapter", "scaling")
    assert facts(browser) == ["trees-are-scaled"]
    assert browser.ask("$('#status').textContent") == "1 of 26 cases, 6 implementations."
    choose(browser, "chapter", "")
    choose(browser, "level", "1")
    assert set(facts(browser)) == {"trees-are-scaled", "case-fail", "case-timeout"}
    choose(browser, "text", "A LEAF is lost")
    assert facts(browser) == ["trees-are-scaled"]
    choose(browser, "level", "")
    choose(browser, "text", "放大")
    assert facts(browser) == [case for case in every if case == "walks-ggog"]
    choose(browser, "text", "no such words")
    assert browser.ask("$('#matrix').textContent") == "No case fits these filters."
    browser.click("#clear")
    assert facts(browser) == every


def test_the_verdict_filter_keeps_rows_that_have_one(browser, few):
    """Of those chosen, with any implementation that is shown."""
    browser.show(few)
    browser.click("[name=verdict][value=crash]")
    assert facts(browser) == ["case-crash"]
    browser.click("[name=verdict][value=xfail]")
    assert facts(browser) == ["case-xfail", "case-crash"]
    browser.show(few, "#verdict=fail&only=late-1.0")
    assert len(facts(browser)) == 8


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
    assert len(facts(browser)) == 8
    assert "walks-oooo" not in facts(browser)


def test_filters_are_in_the_address(browser, few):
    """What one sees can be sent to another."""
    browser.show(few)
    choose(browser, "chapter", "machine")
    browser.click("[name=verdict][value=fail]")
    browser.click("[name=differ]")
    address, seen = browser.ask("location.hash"), facts(browser)
    assert 0 < len(seen) < 26
    browser.show(few, address)
    assert facts(browser) == seen
    assert browser.ask("$('[name=verdict][value=fail]').checked && $('[name=differ]').checked")


def test_chapters_fold(browser, few):
    """To their totals, one by one or all at once."""
    browser.show(few)
    browser.click("[data-chapter=machine]")
    assert facts(browser) == ["trees-are-scaled"]
    assert browser.ask("$('[data-chapter=machine]').getAttribute('aria-expanded')") == "false"
    assert browser.ask("document.activeElement.dataset.chapter") == "machine"
    browser.click("#fold")
    assert len(facts(browser)) == 26
    browser.click("#fold")
    assert facts(browser) == []


# --- details ---


def test_details_tell_what_was_asked_and_what_came(browser, few):
    """The message, the clause with its sentence and its Chinese source, the fault, every call, where it ran."""
    browser.show(few)
    browser.click(cell("walks-gggo", "late-1.0"))
    body = browser.ask("$('#details-body').textContent")
    law = clauses()["MACHINE-growth-window"]
    assert browser.ask("$('#details-title').textContent") == "walks gggo"
    assert browser.ask("$('#details .badge').textContent") == "fail"
    assert browser.ask("$('#details p.message').textContent") == "after step 2: wanted 2048.0, got 1024.0"
    assert law.sentence.replace("`", "") in body
    assert [source.replace("`", "") for source in law.sources] == [
        source.replace("`", "") for source in browser.ask("$$('.sources li').map((source) => source.textContent)")
    ]
    assert browser.ask("$('.sources .zh').lang") == "zh-Hans"
    assert "spec/30-machine.md#machine-growth-window--must" in body
    assert "off by one: a window is longer or shorter than its interval" in body
    calls = browser.ask("$$('.calls li').map((call) => call.textContent)")
    assert calls == [
        "create(rule(init_scale=1024, growth_interval=2, wide_factor=True)) → handle 0",
        "read_scale(handle 0) → 1024 = 2¹⁰ 0x1p+10",
        "update(handle 0, finite) → handle 1",
        "read_scale(handle 1) → 1024 = 2¹⁰ 0x1p+10",
        "update(handle 1, finite) → handle 2",
        "read_scale(handle 2) → 1024 = 2¹⁰ 0x1p+10",
    ]
    assert f"python{browser.ask('DATA.implementations[0].environment.python')}" in body


def test_arrays_are_shown_in_numbers_and_bits(browser, few):
    """Each element in decimals, with its hex digits beside it; a call that raised says what."""
    browser.show(few, "#case=trees-are-scaled&implementation=right-1.0")
    call = browser.ask("$$('.calls li')[1].textContent")
    assert call.startswith(
        "scale(handle 0, {weights: [float16(3)1.53e00-080005.960464477539063e-80001, bfloat16(1)34040], bias: (float32(2)"
    )
    assert browser.ask("$$('.element').map((one) => one.textContent)")[4:6] == ["0.13dcccccd", "inf7f800000"]
    browser.show(few)
    browser.click("tr:nth-child(2) td:nth-child(4) button")
    assert browser.ask("$('.raised').textContent.toWellFormed()").startswith("raised RuntimeError: no <update>")


def test_the_script_can_be_copied(browser, few):
    """And it is told whether it was run."""
    browser.tell("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.show(few, "#case=case-fail&implementation=every-2")
    assert browser.ask("$('.snippet').textContent") == SNIPPET
    assert "It was run, and did show it." in browser.ask("$('#details-body').textContent")
    browser.click(".copy")
    assert browser.until("$('.copy').textContent === 'Copied'")
    assert browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == SNIPPET


def test_a_script_is_selected_where_the_clipboard_is_closed(browser, few):
    """So that it can still be copied."""
    browser.show(few, "#case=case-fail&implementation=every-2")
    browser.driver.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error('closed'))")
    browser.click(".copy")
    assert browser.until("$('.copy').textContent === 'Press Ctrl+C'")
    assert browser.ask("String(getSelection())").strip() == SNIPPET.strip()


def test_a_case_and_an_implementation_have_details_too(browser, few):
    """From the heads of rows and columns, and from there to a result."""
    browser.show(few)
    browser.click("tr.case th button")
    verdicts = ["pass", "fail", "error", "pass", "unsupported"]
    assert browser.ask("$$('.choices .badge').map((badge) => badge.textContent)") == verdicts
    browser.click(".choices li:nth-child(2) button")
    assert browser.ask("$('#details p.message').textContent").startswith("after step 2")
    browser.press("escape")
    assert browser.until(CLOSED)
    browser.click("thead th:nth-child(3) button")
    assert browser.ask("$('.counted').textContent") == "9 of 17 passed, 8 fail"
    assert browser.ask("$$('.chapters tr').map((row) => [...row.cells].slice(0, 2).map((one) => one.textContent))") == [
        ["machine", "8 of 16 passed, 8 fail"],
        ["scaling", "1 of 1 passed"],
    ]
    assert browser.ask("$$('.choices li').length") == 8


@pytest.mark.parametrize(
    ("fragment", "title", "said"),
    [
        (LATE, "walks gggg", "after step 2"),
        ("#case=walks-gggg", "walks gggg", "What came of it"),
        ("#implementation=late-1.0", "late", "9 of 17 passed"),
        ("#case=walks-gggg&implementation=unknown", "Not in this matrix", "unknown"),
        ("#case=unknown", "Not in this matrix", "unknown"),
    ],
)
def test_a_deep_link_opens(browser, few, fragment, title, said):
    """A result, a case, an implementation; and one that leads nowhere says so."""
    browser.show(few, fragment)
    assert browser.ask("$('dialog').open")
    assert browser.ask("$('#details-title').textContent") == title
    assert said in browser.ask("$('#details-body').textContent")


def test_the_address_follows_what_is_open(browser, few):
    """It can be copied while details are open, a changed address opens others, and closing clears it."""
    browser.show(few)
    browser.click(cell("walks-gggg", "late-1.0"))
    assert browser.ask("location.hash") == LATE
    browser.driver.execute_script("location.hash = 'case=walks-gggo&implementation=infinite-1.0'")
    assert browser.until("$('#details-title').textContent === 'walks gggo'")
    browser.press("escape")
    assert browser.until(CLOSED)
    assert browser.ask("location.hash") in ("", "#")


# --- the scale ---


def test_the_scale_is_drawn_point_by_point(browser, few):
    """As many points as there are scales, the overflows marked, and the first difference marked where it is."""
    browser.show(few, "#case=walks-googo&implementation=late-1.0")
    browser.show(few, "#case=walks-gogg&implementation=late-1.0")
    counts = browser.ask(
        "['circle.wanted', 'circle.got', 'rect.overflow', '.sign', 'line.divergence', 'circle.parted']"
        ".map((css) => $$(`.chart > .trajectory ${css}`).length)"
    )
    assert counts == [5, 5, 1, 4, 1, 1]
    x = browser.ask("[Number($('.chart line.divergence').getAttribute('x1')), Number($('.chart .parted').getAttribute('cx'))]")
    points = browser.ask(
        "$$('.chart > .trajectory circle.wanted').map((one) => [Number(one.getAttribute('cx')), Number(one.getAttribute('cy'))])"
    )
    assert x == [points[4][0]] * 2
    # 2^10, 2^10, 2^9, 2^9, 2^10: equal scales are equally high, and a power is as far from the next as any other.
    assert points[0][1] == points[1][1] == points[4][1] < points[2][1] == points[3][1]
    assert browser.ask("$$('.chart > .trajectory text.tick').map((tick) => tick.textContent)")[:2] == ["2⁸", "2⁹"]
    assert browser.ask("$('.chart > .trajectory').getAttribute('aria-label')") == (
        "The scale over 4 steps, 1 overflow. They part after step 4: wanted 1024 = 2¹⁰, got 512 = 2⁹."
    )
    assert len(browser.ask("$$('.chart tbody tr')")) == 5


def test_a_scale_without_a_logarithm_has_a_place(browser, few):
    """An infinite one lies above the others, on a line that says so."""
    browser.show(few, "#case=walks-gogg&implementation=infinite-1.0")
    heights = browser.ask("$$('.chart > .trajectory circle.got').map((one) => Number(one.getAttribute('cy')))")
    assert len(heights) == 3
    assert heights[2] < heights[0] == heights[1]
    assert "inf" in browser.ask("$$('.chart > .trajectory text.tick').map((tick) => tick.textContent)")
    low = browser.ask("axisOf([1, 2, 0, NaN]).ticks.map(([, label]) => label)")
    assert low[-1] == "≤ 0, nan"


def test_what_passed_does_not_part(browser, few):
    """And where the precisions differ, they part only beyond the float32 in which they were compared."""
    browser.show(few, "#case=walks-gogg&implementation=right-1.0")
    assert browser.ask("$$('.divergence').length") == 0
    assert browser.ask("divergenceOf([1, 2, 4], [1, 2])") is None
    third, single = 1 / 3, float(np.float32(1 / 3))
    assert browser.ask("divergenceOf(arguments[0], arguments[1])", [1, single, 4], [1, third, 5]) == 2
    assert browser.ask("divergenceOf(arguments[0], arguments[1])", [1, third], [1, single]) == 1


# --- numbers in words ---


def test_floats_are_read_as_python_writes_them(browser, few):
    """Bit for bit: powers, subnormals, the largest, and what is no number."""
    browser.show(few)
    values = [0.0, 1.0, 1.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, -3.0, 2.0**-149, 1 / 3, 2.0**127]
    for written in ([value.hex() for value in values], [short(value.hex()) for value in values]):
        read = browser.ask("arguments[0].map((text) => String(floatOf(text)))", written)
        assert [float(text) for text in read] == values
    assert browser.ask(
        "['inf', '-inf', 'nan', '-0x0.0p+0', 'words', '0x10'].map((text) => decimal(floatOf(text) ?? 'none'))"
    ) == [
        "inf",
        "-inf",
        "nan",
        "-0",
        "nan",
        "nan",
    ]
    assert browser.ask("[floatOf('words'), floatOf('0x10')]") == [None, None]


def test_powers_of_two_are_told_as_powers(browser, few):
    """With their decimals where those are short."""
    browser.show(few)
    values = [65536.0, 2.0**127, 2.0**-10, 1.0, 2.0, 3.0, 0.0, 2.0**-149]
    assert browser.ask("arguments[0].map(readable)", values) == [
        "65536 = 2¹⁶",
        "2¹²⁷",
        "0.0009765625 = 2⁻¹⁰",
        "1",
        "2",
        "3",
        "0",
        "2⁻¹⁴⁹",
    ]


def test_runs_are_shown_in_their_shortness(browser, few):
    """A long array by what is repeated and how often, and a trajectory unrolled."""
    browser.show(few)
    array = {"dtype": "float32", "shape": [70000], "runs": [[69999, ["3f800000"]], [1, ["7f800000"]]]}
    assert browser.ask("arrayNode(arguments[0]).textContent", array) == "float32(70000)13f800000 × 69999inf7f800000"
    assert browser.ask("inFull([[2, ['a', 'b']], [1, ['c']]])") == ["a", "b", "a", "b", "c"]


@pytest.mark.parametrize(
    ("dtype", "digits"), [("float16", 4), ("bfloat16", 4), ("float32", 8), ("float64", 16)], ids=lambda value: str(value)
)
def test_elements_are_read_as_their_dtype_reads_them(browser, few, dtype, digits):
    """A spread of all patterns, specials among them; float32 in the fewest digits that give it back."""
    browser.show(few)
    bits = 4 * digits
    fraction = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
    infinity = (1 << bits - 1) - (1 << fraction)
    patterns = [0, 1, (1 << fraction) - 1, 1 << fraction, infinity - 1, infinity, infinity + 1, 1 << bits - 1, (1 << bits) - 1]
    patterns += [(index * 0x9E3779B97F4A7C15) % (1 << bits) for index in range(300)]
    said = browser.ask(
        "arguments[0].map((digits) => elementOf(digits, arguments[1]))", [f"{one:0{digits}x}" for one in patterns], dtype
    )
    for pattern, text in zip(patterns, said, strict=True):
        wanted = float(decode(pattern, dtype))
        got = float(np.float32(text)) if dtype in ("float32", "bfloat16") else float(text)
        assert struct.pack("d", got) == struct.pack("d", wanted) or (np.isnan(got) and np.isnan(wanted)), (hex(pattern), text)


def test_other_elements_are_read_too(browser, few):
    """Bools, integers with their sign, and complex numbers of two parts."""
    browser.show(few)
    cases = {
        ("00", "bool"): "False",
        ("01", "bool"): "True",
        ("ffffffff", "int32"): "-1",
        ("8000000000000000", "int64"): str(-(2**63)),
    }
    cases |= {("3f80000040000000", "complex64"): "1+2i", ("3ff0000000000000c000000000000000", "complex128"): "1-2i"}
    for (digits, dtype), wanted in cases.items():
        assert browser.ask("elementOf(arguments[0], arguments[1])", digits, dtype) == wanted


# --- by keyboard alone ---


def test_the_matrix_is_one_stop_of_the_tab_key(browser, few):
    """From the last button before it to the page's end; arrows move within, and leave no place out."""
    browser.show(few)
    browser.driver.execute_script("document.getElementById('fold').focus()")
    browser.press("tab")
    assert browser.focus() == "pass: walks gggg, right 1.0"
    assert browser.ask("$$('table [tabindex=\"0\"]').length") == 1
    for key, wanted in [
        ("arrow_right", "fail: walks gggg, late 1.0"),
        ("arrow_down", "fail: walks gggo, late 1.0"),
        ("arrow_up", "fail: walks gggg, late 1.0"),
        ("arrow_up", "late 1.0, level 1: 9 of 17 passed, 8 fail"),
        ("arrow_down", "fail: walks gggg, late 1.0"),
        ("end", "unsupported: walks gggg, fixed 1.0"),
        ("home", "walks ggggMACHINE-state ·\xa0L0"),
        ("arrow_up", "machine25 cases"),
        ("arrow_down", "walks ggggMACHINE-state ·\xa0L0"),
        ("arrow_left", "walks ggggMACHINE-state ·\xa0L0"),
        ("control+end", "unsupported: trees are scaled, fixed 1.0"),
        ("control+home", "right 1.0, level 1: 17 of 17 passed"),
    ]:
        browser.press(key)
        assert browser.focus().startswith(wanted), key
    browser.press("tab")
    assert not browser.ask("$('table').contains(document.activeElement)")
    browser.press("shift+tab")
    assert browser.focus() == "right 1.0, level 1: 17 of 17 passed"


def test_enter_opens_and_escape_closes(browser, few):
    """The focus goes into the dialog, stays in it, and comes back to the cell."""
    browser.show(few)
    browser.driver.execute_script("document.getElementById('fold').focus()")
    browser.press("tab", "arrow_right", "enter")
    assert browser.ask("$('dialog').open && $('dialog').matches(':modal')")
    assert browser.ask("document.activeElement.id") == "details-title"
    assert browser.ask("$('dialog').getAttribute('aria-labelledby')") == "details-title"
    for _ in range(6):
        browser.press("tab")
        assert browser.ask("$('dialog').contains(document.activeElement) || document.activeElement === document.body")
    browser.press("escape")
    assert browser.until(CLOSED)
    assert browser.focus() == "fail: walks gggg, late 1.0"


@pytest.mark.parametrize("how", ["button", "outside"])
def test_details_close_by_hand(browser, few, how):
    """By the button, and by a click beside them; the focus comes back."""
    browser.show(few)
    browser.click(cell("walks-gggg", "late-1.0"))
    if how == "button":
        browser.click("[data-close]")
    else:
        from selenium.webdriver import ActionChains

        ActionChains(browser.driver).move_by_offset(40, 400).click().perform()
    assert browser.until(CLOSED)
    assert browser.focus() == "fail: walks gggg, late 1.0"


def test_after_a_deep_link_the_focus_goes_to_its_cell(browser, few):
    """Or, where a filter hides that cell, into the matrix."""
    browser.show(few, LATE)
    browser.press("escape")
    assert browser.until(CLOSED)
    assert browser.focus() == "fail: walks gggg, late 1.0"
    browser.show(few, f"{LATE}&chapter=scaling")
    browser.press("escape")
    assert browser.until(CLOSED)
    assert browser.focus() == "pass: trees are scaled, right 1.0"


def test_the_focus_is_seen(browser, few):
    """On the skip link, filters and cells there is an outline."""
    browser.show(few)
    browser.press("tab")
    assert browser.focus() == "Skip to the matrix"
    assert browser.ask("$('.skip').getBoundingClientRect().top") >= 0
    browser.press("enter")
    assert browser.focus() == "pass: walks gggg, right 1.0"
    outline = "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
    assert browser.ask(outline) == ["solid", "2px"]
    browser.driver.execute_script("document.querySelector('[name=text]').focus()")
    assert browser.ask(outline) == ["solid", "2px"]


# --- sizes, colours, motion, paper ---


@pytest.mark.parametrize("which", ["one", "few", "many"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_no_wider_than_its_window(browser, which, width, request):
    """Neither the body nor the details scroll sideways; a wide matrix scrolls within its frame, its heads standing still."""
    file = request.getfixturevalue(which)
    browser.show(file, width=width, height=844)
    whole = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.ask(whole)
    assert browser.ask("$('#matrix').getBoundingClientRect().right") <= width
    if which == "many":
        assert browser.ask("$('#matrix').scrollWidth > $('#matrix').clientWidth")
        browser.driver.execute_script("document.querySelector('#matrix').scrollTo(400, 600)")
        standing = "[$('#matrix'), $('thead th:nth-child(12)'), $('tr.case:nth-child(9) th')]"
        frame, head, row = browser.ask(f"{standing}.map((one) => one.getBoundingClientRect().toJSON())")
        assert abs(head["top"] - frame["top"]) <= 2
        assert abs(row["left"] - frame["left"]) <= 2
    browser.click("td.cell button")
    assert browser.ask("$('dialog').scrollWidth <= $('dialog').clientWidth")
    assert browser.ask("$('dialog').getBoundingClientRect().width") <= width
    assert browser.ask(whole)


def test_dark_is_another_dress(browser, few):
    """By the system's wish, and by the button over it; the choice is remembered."""
    styles = "['body', '#matrix', 'td.fail', 'h1'].map((css) => getComputedStyle($(css)))"
    colours = f"{styles}.map(({{color, backgroundColor}}) => color + backgroundColor)"
    browser.show(few)
    browser.driver.execute_script("localStorage.clear()")
    light = browser.ask(colours)
    browser.show(few, prefers_color_scheme="dark")
    dark = browser.ask(colours)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert browser.ask("$('#theme').textContent") == "Light theme"
    browser.click("#theme")
    assert browser.ask(colours) == light
    assert browser.ask("$('#theme').textContent") == "Dark theme"
    browser.show(few, prefers_color_scheme="dark")
    assert browser.ask(colours) == light
    browser.click("#theme")
    assert browser.ask(colours) == dark
    browser.driver.execute_script("localStorage.clear()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "fragment", ["", LATE, "#case=trees-are-scaled&implementation=right-1.0", "#case=case-fail", "#implementation=every-2"]
)
def test_every_text_can_be_read(browser, few, scheme, fragment):
    """Each has a contrast of at least 4.5 with what is behind it, hatching included: WCAG's level AA."""
    browser.show(few, fragment, prefers_color_scheme=scheme)
    found = browser.ask(browsing.CONTRASTS)
    assert len(found) > 20
    assert [text for ratio, text in found if ratio < 4.5] == []


def test_motion_is_left_out_where_it_is_not_wanted(browser, few):
    """Details come without moving then."""
    browser.show(few, LATE, prefers_reduced_motion="reduce")
    assert browser.ask("getComputedStyle($('dialog')).animationName") == "none"
    browser.show(few, LATE, prefers_reduced_motion="no-preference")
    assert browser.ask("getComputedStyle($('dialog')).animationName") == "come"


def test_it_can_be_printed(browser, many, few):
    """The whole matrix without its controls, light on every page, and as wide as a landscape page; or the details alone."""
    browser.show(many, width=1040, prefers_color_scheme="dark")
    browser.tell("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.ask("['#filters', '#theme', '.skip'].every((css) => !$(css).checkVisibility())")
    assert browser.ask("getComputedStyle($('#matrix')).overflow") == "visible"
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("$('table').offsetWidth") <= 1040
    browser.show(few, LATE)
    browser.tell("Emulation.setEmulatedMedia", media="print")
    assert not browser.ask("$('main').checkVisibility()")
    assert browser.ask("$('dialog').checkVisibility()")


def test_an_empty_matrix_is_a_page(browser, tmp_path):
    """It says that there is nothing, and no error."""
    file = tmp_path / "empty.html"
    file.write_text(page.html_of(matrix.of([])), "utf-8")
    browser.errors()
    browser.show(file)
    assert browser.errors() == []
    assert "No case fits" in browser.ask("$('#matrix').textContent")
