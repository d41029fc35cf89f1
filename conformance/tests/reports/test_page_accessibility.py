"""Accessibility of the page: keyboard, window sizes, color schemes, motion and print."""

import pytest
from reports import browsing

pytestmark = pytest.mark.slow

CELL = "fail: trace gggg, late 1.0"

# --- keyboard ---


def test_the_matrix_is_one_tab_stop(browser, page_of_six):
    """Arrow keys, Home and End move within it and reach every cell."""
    browser.show(page_of_six)
    browser.eval("$('#fold').focus()")
    browser.press("tab")
    assert browser.focused() == "pass: trace gggg, conforming 1.0"
    assert browser.eval("$$('table [tabindex=\"0\"]').length") == 1
    for key, expected in [
        ("arrow_right", CELL),
        ("arrow_down", "fail: trace gggo, late 1.0"),
        ("arrow_up", CELL),
        ("arrow_up", "late 1.0, level 1: 9 of 17 passed, 8 fail"),
        ("arrow_down", CELL),
        ("end", "unsupported: trace gggg, fixed 1.0"),
        ("home", "trace ggggMACHINE-state ·\xa0L0"),
        ("arrow_up", "machine25 cases"),
        ("arrow_down", "trace ggggMACHINE-state ·\xa0L0"),
        ("arrow_left", "trace ggggMACHINE-state ·\xa0L0"),
        ("control+end", "unsupported: trees are scaled, fixed 1.0"),
        ("control+home", "conforming 1.0, level 1: 17 of 17 passed"),
    ]:
        browser.press(key)
        assert browser.focused().startswith(expected), key
    browser.press("tab")
    assert not browser.eval("$('table').contains(document.activeElement)")
    browser.press("shift+tab")
    assert browser.focused() == "conforming 1.0, level 1: 17 of 17 passed"


def test_the_focus_stays_in_open_details(browser, page_of_six):
    browser.show(page_of_six)
    browser.eval("$('#fold').focus()")
    browser.press("tab", "arrow_right", "enter")
    assert browser.eval("$('dialog').open && $('dialog').matches(':modal')")
    assert (
        browser.eval("document.activeElement.id")
        == browser.eval("$('dialog').getAttribute('aria-labelledby')")
        == "details-title"
    )
    for _ in range(6):
        browser.press("tab")
        assert browser.eval("$('dialog').contains(document.activeElement) || document.activeElement === document.body")


def test_closing_details_returns_the_focus_to_the_cell(browser, page_of_six):
    """Details are closed by a key, a button, or a click beside them, also if a link opened them."""
    from selenium.webdriver import ActionChains

    browser.show(page_of_six)
    browser.eval("$('#fold').focus()")
    browser.press("tab", "arrow_right", "enter")
    browser.press("escape")
    assert browser.wait_until_closed() == CELL
    browser.press("enter")
    browser.click("[aria-label=Close]")
    assert browser.wait_until_closed() == CELL
    browser.press("enter")
    ActionChains(browser.driver).move_by_offset(40, 400).click().perform()
    assert browser.wait_until_closed() == CELL
    for fragment, expected in [("", CELL), ("&chapter=scaling", "pass: trees are scaled, conforming 1.0")]:
        browser.show(page_of_six, f"{browsing.LINK_TO_A_FAILURE}{fragment}")
        browser.press("escape")
        assert browser.wait_until_closed() == expected


def test_the_skip_link_is_visible_while_it_has_the_focus(browser, page_of_six):
    """The link is the first tab stop."""
    browser.show(page_of_six)
    browser.press("tab")
    assert browser.focused() == "Skip to the matrix"
    assert browser.eval("$('#skip').getBoundingClientRect().top") >= 0


def test_the_focus_has_an_outline(browser, page_of_six):
    """The skip link moves the focus to the first cell. Filters have an outline, too."""
    outline = "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
    browser.show(page_of_six)
    browser.press("tab", "enter")
    assert browser.focused() == "pass: trace gggg, conforming 1.0"
    assert browser.eval(outline) == ["solid", "2px"]
    browser.eval("$('[name=text]').focus()")
    assert browser.eval(outline) == ["solid", "2px"]


# --- sizes, colors, motion, print ---


@pytest.mark.parametrize("which", ["page_of_one", "page_of_six", "page_of_thirty"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_no_wider_than_its_window(browser, which, width, request):
    """Details are no wider either."""
    browser.show(request.getfixturevalue(which), width=width, height=844)
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.eval(fits)
    assert browser.eval("$('#matrix').getBoundingClientRect().right") <= width
    browser.click("td.cell button")
    assert browser.eval("$('dialog').scrollWidth <= $('dialog').clientWidth")
    assert browser.eval("$('dialog').getBoundingClientRect().width") <= width
    assert browser.eval(fits)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_headers_of_a_wide_matrix_stay_in_place(browser, page_of_thirty, width):
    """The matrix scrolls within its frame."""
    browser.show(page_of_thirty, width=width, height=844)
    assert browser.eval("$('#matrix').scrollWidth > $('#matrix').clientWidth")
    browser.eval("$('#matrix').scrollIntoView()")
    browser.eval("$('#matrix').scrollTo(400, 600)")
    assert browser.eval("$('#matrix').scrollTop") == 600
    nodes = "[$('#matrix'), $('thead th:nth-child(12)'), $('tr.case:nth-child(9) th'), $('.corner')]"
    frame, head, row, corner = browser.eval(f"{nodes}.map((node) => node.getBoundingClientRect().toJSON())")
    assert abs(head["top"] - frame["top"]) <= 2
    assert abs(row["left"] - frame["left"]) <= 2
    point = (corner["left"] + 9, corner["top"] + 9)
    assert browser.eval("document.elementFromPoint(...arguments).className", *point) == "corner"


def test_the_color_scheme_is_that_of_the_system_or_of_the_choice(browser, page_of_six):
    """A chosen color scheme is stored."""
    styles = "['body', '#matrix', 'td.fail', 'h1'].map((css) => getComputedStyle($(css)))"
    colors = f"{styles}.map(({{color, backgroundColor}}) => color + backgroundColor)"
    browser.show(page_of_six)
    browser.eval("localStorage.clear()")
    light = browser.eval(colors)
    browser.show(page_of_six, prefers_color_scheme="dark")
    dark = browser.eval(colors)
    assert all(light_color != dark_color for light_color, dark_color in zip(light, dark, strict=True))
    for theme, expected in [("light", light), ("dark", dark), ("light dark", dark)]:
        browser.choose("#theme", theme)
        assert browser.eval(colors) == expected
        browser.show(page_of_six, prefers_color_scheme="dark")
        assert browser.eval(colors) == expected
        assert browser.eval("$('#theme').value") == theme
    browser.show(page_of_six)
    assert browser.eval(colors) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(browser, page_of_six, scheme):
    """The contrast ratio is at least 4.5, as WCAG's level AA requires, even on hatched backgrounds."""
    browser.show(page_of_six, prefers_color_scheme=scheme)
    details = [("trace-gggg", "late-1.0"), ("trees-are-scaled", "conforming-1.0"), ("case-fail", None), (None, "every-2")]
    for target in [None, *details]:
        if target:
            browser.open(*target)
        contrasts = browser.eval(browsing.CONTRASTS)
        assert len(contrasts) > 20
        assert [text for ratio, text in contrasts if ratio < 4.5] == []


@pytest.mark.parametrize(("preference", "animation"), [("reduce", "none"), ("no-preference", "slide-in")])
def test_reduced_motion_disables_the_animation(browser, page_of_six, preference, animation):
    """Without this preference, details slide in."""
    browser.show(page_of_six, browsing.LINK_TO_A_FAILURE, prefers_reduced_motion=preference)
    assert browser.eval("getComputedStyle($('dialog')).animationName") == animation


def test_the_matrix_can_be_printed(browser, page_of_thirty):
    """The matrix is printed without controls, in light colors and within a landscape page."""
    browser.show(page_of_thirty, width=1040, prefers_color_scheme="dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.send_command("Emulation.setEmulatedMedia", media="print", features=dark)
    assert browser.eval("['#filters', '#theme', '#skip'].every((css) => !$(css).checkVisibility())")
    assert browser.eval("getComputedStyle($('#matrix')).overflow") == "visible"
    assert browser.eval("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.eval("$('table').offsetWidth") <= 1040


def test_open_details_are_printed_alone(browser, page_of_six):
    browser.show(page_of_six, browsing.LINK_TO_A_FAILURE)
    browser.send_command("Emulation.setEmulatedMedia", media="print")
    assert not browser.eval("$('main').checkVisibility()")
    assert browser.eval("$('dialog').checkVisibility()")


def test_an_empty_matrix_has_a_page(browser, page):
    """The page shows that no case matches, and the console has no error."""
    browser.discard_logs()
    browser.show(page())
    assert browser.errors() == []
    assert "No case matches" in browser.eval("$('#matrix').textContent")
