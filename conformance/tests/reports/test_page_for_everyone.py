"""The page by keyboard alone, wide and narrow, light and dark, without motion, and on paper."""

import pytest
from reports import browsing

CELL = "fail: walks gggg, late 1.0"

# --- by keyboard alone ---


def test_the_matrix_is_one_stop_of_the_tab_key(browser, few):
    """From the last button before it to the page's end; arrows move within, and leave no place out."""
    browser.show(few)
    browser.ask("$('#fold').focus()")
    browser.press("tab")
    assert browser.focus() == "pass: walks gggg, right 1.0"
    assert browser.ask("$$('table [tabindex=\"0\"]').length") == 1
    for key, wanted in [
        ("arrow_right", CELL),
        ("arrow_down", "fail: walks gggo, late 1.0"),
        ("arrow_up", CELL),
        ("arrow_up", "late 1.0, level 1: 9 of 17 passed, 8 fail"),
        ("arrow_down", CELL),
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


def test_details_open_and_close_by_key_and_hand(browser, few):
    """The focus goes into the dialog, stays in it, and comes back to the cell; after a deep link it goes to its cell."""
    from selenium.webdriver import ActionChains

    browser.show(few)
    browser.ask("$('#fold').focus()")
    browser.press("tab", "arrow_right", "enter")
    assert browser.ask("$('dialog').open && $('dialog').matches(':modal')")
    assert (
        browser.ask("document.activeElement.id") == browser.ask("$('dialog').getAttribute('aria-labelledby')") == "details-title"
    )
    for _ in range(6):
        browser.press("tab")
        assert browser.ask("$('dialog').contains(document.activeElement) || document.activeElement === document.body")
    browser.press("escape")
    assert browser.until_closed() == CELL
    browser.press("enter")
    browser.click("[aria-label=Close]")
    assert browser.until_closed() == CELL
    browser.press("enter")
    ActionChains(browser.driver).move_by_offset(40, 400).click().perform()
    assert browser.until_closed() == CELL
    for fragment, wanted in [("", CELL), ("&chapter=scaling", "pass: trees are scaled, right 1.0")]:
        browser.show(few, f"{browsing.LATE}{fragment}")
        browser.press("escape")
        assert browser.until_closed() == wanted


def test_the_focus_is_seen(browser, few):
    """On the button that skips the filters, on the filters and on cells there is an outline."""
    outline = "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
    browser.show(few)
    browser.press("tab")
    assert browser.focus() == "Skip to the matrix"
    assert browser.ask("$('#skip').getBoundingClientRect().top") >= 0
    browser.press("enter")
    assert browser.focus() == "pass: walks gggg, right 1.0"
    assert browser.ask(outline) == ["solid", "2px"]
    browser.ask("$('[name=text]').focus()")
    assert browser.ask(outline) == ["solid", "2px"]


# --- sizes, colours, motion, paper ---


@pytest.mark.parametrize("which", ["one", "few", "many"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_no_wider_than_its_window(browser, which, width, request):
    """Neither the body nor the details scroll sideways; a wide matrix scrolls within its frame, its heads standing still."""
    browser.show(request.getfixturevalue(which), width=width, height=844)
    whole = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.ask(whole)
    assert browser.ask("$('#matrix').getBoundingClientRect().right") <= width
    if which == "many":
        assert browser.ask("$('#matrix').scrollWidth > $('#matrix').clientWidth")
        browser.ask("$('#matrix').scrollIntoView()")
        browser.ask("$('#matrix').scrollTo(400, 600)")
        assert browser.ask("$('#matrix').scrollTop") == 600
        standing = "[$('#matrix'), $('thead th:nth-child(12)'), $('tr.case:nth-child(9) th'), $('.corner')]"
        frame, head, row, corner = browser.ask(f"{standing}.map((one) => one.getBoundingClientRect().toJSON())")
        assert abs(head["top"] - frame["top"]) <= 2
        assert abs(row["left"] - frame["left"]) <= 2
        assert browser.ask("document.elementFromPoint(...arguments).className", corner["left"] + 9, corner["top"] + 9) == "corner"
    browser.click("td.cell button")
    assert browser.ask("$('dialog').scrollWidth <= $('dialog').clientWidth")
    assert browser.ask("$('dialog').getBoundingClientRect().width") <= width
    assert browser.ask(whole)


def test_dark_is_another_dress(browser, few):
    """By the system's wish, and by the choice over it; which is remembered."""
    styles = "['body', '#matrix', 'td.fail', 'h1'].map((css) => getComputedStyle($(css)))"
    colours = f"{styles}.map(({{color, backgroundColor}}) => color + backgroundColor)"
    browser.show(few)
    browser.ask("localStorage.clear()")
    light = browser.ask(colours)
    browser.show(few, prefers_color_scheme="dark")
    dark = browser.ask(colours)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    for theme, wanted in [("light", light), ("dark", dark), ("light dark", dark)]:
        browser.choose("#theme", theme)
        assert browser.ask(colours) == wanted
        browser.show(few, prefers_color_scheme="dark")
        assert browser.ask(colours) == wanted
        assert browser.ask("$('#theme').value") == theme
    browser.show(few)
    assert browser.ask(colours) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser, few, scheme):
    """Each has a contrast of at least 4.5 with what is behind it, hatching included: WCAG's level AA."""
    browser.show(few, prefers_color_scheme=scheme)
    details = [("walks-gggg", "late-1.0"), ("trees-are-scaled", "right-1.0"), ("case-fail", None), (None, "every-2")]
    for place in [None, *details]:
        if place:
            browser.open(*place)
        found = browser.ask(browsing.CONTRASTS)
        assert len(found) > 20
        assert [text for ratio, text in found if ratio < 4.5] == []


@pytest.mark.parametrize(("wish", "animation"), [("reduce", "none"), ("no-preference", "come")])
def test_motion_is_left_out_where_it_is_not_wanted(browser, few, wish, animation):
    """Details come without moving then."""
    browser.show(few, browsing.LATE, prefers_reduced_motion=wish)
    assert browser.ask("getComputedStyle($('dialog')).animationName") == animation


def test_it_can_be_printed(browser, many, few):
    """The whole matrix without its controls, light on every page, and as wide as a landscape page; or the details alone."""
    browser.show(many, width=1040, prefers_color_scheme="dark")
    browser.tell("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.ask("['#filters', '#theme', '#skip'].every((css) => !$(css).checkVisibility())")
    assert browser.ask("getComputedStyle($('#matrix')).overflow") == "visible"
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("$('table').offsetWidth") <= 1040
    browser.show(few, browsing.LATE)
    browser.tell("Emulation.setEmulatedMedia", media="print")
    assert not browser.ask("$('main').checkVisibility()")
    assert browser.ask("$('dialog').checkVisibility()")


def test_an_empty_matrix_is_a_page(browser, page):
    """It says that there is nothing, and no error."""
    browser.errors()
    browser.show(page())
    assert browser.errors() == []
    assert "No case matches" in browser.ask("$('#matrix').textContent")
