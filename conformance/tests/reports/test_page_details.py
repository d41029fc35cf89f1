"""Details of a result on the page: texts, the plot of the scale, and numbers with their bits."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from ampscale_conformance.model.bits import DIGITS
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.floats import decode
from ampscale_conformance.reports.tables import short
from reports import browsing, samples

# --- details ---


def test_details_have_the_message_the_clause_and_the_calls(browser, page_of_six):
    """Sources of the clause, the bug, and the environment are included."""
    browser.show(page_of_six)
    browser.click(browsing.cell("trace-gggo", "late-1.0"))
    body = browser.eval("$('#details').textContent")
    clause = clauses()["MACHINE-growth-window"]
    assert browser.eval("['h2', '.badge', 'p.message'].map((css) => $(`#details ${css}`).textContent)") == [
        "trace gggo",
        "fail",
        "after step 2: expected 2048.0, got 1024.0",
    ]
    assert clause.sentence.replace("`", "") in body
    assert browser.eval("texts('.sources li')") == [source.replace("`", "") for source in clause.sources]
    assert browser.eval("$('.sources .zh').lang") == "zh-Hans"
    assert browser.eval("$$('.sources code, .sentence code').length") == sum(
        text.count("`") // 2 for text in (clause.sentence, *clause.sources)
    )
    assert "spec/30-machine.md#machine-growth-window--must" in body
    assert "off by one: a window is longer or shorter than its interval" in body
    assert browser.eval("texts('li:has(b)')") == [
        "create(rule(init_scale=1024, growth_interval=2, float64_factor=True)) → handle 0",
        "read_scale(handle 0) → 1024 = 2¹⁰ 0x1p+10",
        "update(handle 0, finite) → handle 1",
        "read_scale(handle 1) → 1024 = 2¹⁰ 0x1p+10",
        "update(handle 1, finite) → handle 2",
        "read_scale(handle 2) → 1024 = 2¹⁰ 0x1p+10",
    ]
    assert f"python{browser.eval('DATA.implementations[0].environment.python')}" in body


def test_arrays_are_shown_as_numbers_with_bits(browser, page_of_six):
    """Each element is a decimal number with its hex digits."""
    browser.show_once(page_of_six)
    browser.open("trees-are-scaled", "conforming-1.0")
    assert browser.eval("texts('li:has(b)')")[1].startswith(
        "scale(handle 0, {weights: [float16(3)1.53e00-080005.960464477539063e-80001, bfloat16(1)34040], bias: (float32(2)"
    )
    assert browser.eval("texts('.element')")[4:6] == ["0.13dcccccd", "inf7f800000"]


def test_the_script_can_be_copied(browser, page_of_six):
    browser.send_command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.show(page_of_six, "#case=case-fail&implementation=every-2")
    assert browser.eval("$('pre').textContent") == samples.SNIPPET
    browser.click(".bar:has(output) button")
    browser.wait_until("$('output').textContent === 'Copied'")
    assert browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == samples.SNIPPET


def test_the_script_is_selected_if_the_clipboard_is_not_available(browser, page_of_six):
    browser.show(page_of_six, "#case=case-fail&implementation=every-2")
    browser.eval("(navigator.clipboard.writeText = () => Promise.reject(new Error('closed'))) && null")
    browser.click(".bar:has(output) button")
    browser.wait_until("$('output').textContent === 'Selected: press Ctrl+C'")
    assert browser.eval("String(getSelection())").strip() == samples.SNIPPET.strip()


def test_the_page_states_whether_the_script_was_run(browser, page_of_six):
    """A script reproduced the failure, did not reproduce it, or was not run."""
    browser.show_once(page_of_six)
    texts = {None: "not run", False: "run, and did not reproduce the failure", True: "run, and reproduced the failure"}
    for reproduced, text in texts.items():
        result = {"snippet": "x"} | ({} if reproduced is None else {"reproduced": reproduced})
        assert f"Without ampscale. It was {text}.Copyx" in browser.eval("snippetSection(arguments[0]).textContent", result)
    assert browser.eval("snippetSection({})") is None


def test_the_header_of_a_row_opens_the_results_of_the_case(browser, page_of_six):
    """Each result is a link to its own details."""
    browser.show(page_of_six)
    browser.click("tr.case th button")
    assert browser.eval("texts('.choices li')") == [
        "passconforming 1.0",
        "faillate 1.0",
        f"error{samples.HOSTILE} 1.0",
        "passinfinite 1.0",
        "unsupportedfixed 1.0",
    ]
    browser.click(".choices li:nth-child(2) button")
    assert browser.eval("$('#details p.message').textContent").startswith("after step 2")
    browser.press("escape")
    assert browser.wait_until_closed() == "trace ggggMACHINE-state ·\xa0L0"


def test_the_header_of_a_column_opens_the_totals_of_the_implementation(browser, page_of_six):
    """The failed results are links."""
    browser.show(page_of_six)
    browser.click("thead th:nth-child(3) button")
    assert browser.eval("[...texts('.sentence'), ...texts('section:first-of-type dl > *')]") == [
        "9 of 17 passed, 8 fail",
        *("machine", "8 of 16 passed, 8 fail"),
        *("scaling", "1 of 1 passed"),
    ]
    assert browser.eval("$$('.choices li').length") == 8


@pytest.mark.parametrize(
    ("fragment", "title", "text"),
    [
        (browsing.LINK_TO_A_FAILURE, "trace gggg", "after step 2"),
        ("#case=trace-gggg", "trace gggg", "Results"),
        ("#implementation=late-1.0", "late", "9 of 17 passed"),
        ("#case=trace-gggg&implementation=unknown", "Not in this matrix", "trace-gggg unknown"),
        ("#case=unknown", "Not in this matrix", "unknown"),
    ],
)
def test_a_link_opens_details(browser, page_of_six, fragment, title, text):
    """A link points to a result, a case, or an implementation. A broken link opens details that report the missing target."""
    browser.show(page_of_six, fragment)
    assert browser.eval("$('dialog').open")
    assert browser.eval("$('#details-title').textContent") == title
    assert text in browser.eval("$('#details').textContent")


def test_the_address_is_that_of_the_open_details(browser, page_of_six):
    """Changing the address opens other details, and closing the details clears the address."""
    browser.show(page_of_six)
    browser.click(browsing.cell("trace-gggg", "late-1.0"))
    assert browser.eval("location.hash") == browsing.LINK_TO_A_FAILURE
    browser.driver.execute_script("location.hash = 'case=trace-gggo&implementation=infinite-1.0'")
    browser.wait_until("$('#details-title').textContent === 'trace gggo'")
    browser.press("escape")
    browser.wait_until_closed()
    assert browser.eval("location.hash") in ("", "#")


# --- plot of the scale ---


@pytest.fixture
def plot(browser, page_of_six):
    """Return the browser with the open details of a case of four steps, whose last scale is wrong."""
    browser.show(page_of_six)
    browser.open("trace-gogg", "late-1.0")
    return browser


def test_the_plot_marks_scales_overflows_and_the_first_difference(plot):
    marks = ["circle.expected", "circle.got", ".band", ".sign", "line.divergence", "circle.divergent", ".rule"]
    assert plot.eval("arguments[0].map((css) => $$(`.trajectory ${css}`).length)", marks) == [5, 5, 1, 4, 1, 1, 4]
    assert plot.eval("texts('.trajectory .tick')") == ["2⁸", "2⁹", "2¹⁰", "2¹¹", "0", "1", "2", "3", "4"]


def test_the_points_of_the_plot_lie_on_the_lines_of_their_powers_of_two(plot):
    """The lines are equally far apart. The expected scales are 2^10, 2^10, 2^9, 2^9 and 2^10."""

    def numbers(css, name):
        """Return an attribute of all matching elements."""
        return plot.eval("$$(arguments[0]).map((mark) => Number(mark.getAttribute(arguments[1])))", f".trajectory {css}", name)

    lines = numbers(".rule", "y1")
    assert [low - high for low, high in pairwise(lines)] == pytest.approx([lines[0] - lines[1]] * 3)
    assert lines[0] > lines[1]
    assert numbers("circle.expected", "cy") == [lines[2], lines[2], lines[1], lines[1], lines[2]]
    assert numbers("circle.divergent", "cy") == [lines[1]]
    last_position = numbers("circle.expected", "cx")[-1:]
    assert numbers("circle.divergent", "cx") == numbers("line.divergence", "x1") == last_position


def test_the_plot_is_also_text_and_a_table(plot):
    """The row of the first difference is marked."""
    text = (
        "The scale over 4 steps, 1 overflow. First difference after step 3 (counted from 0): expected 1024 = 2¹⁰, got 512 = 2⁹."
    )
    assert plot.eval("[$('.trajectory').getAttribute('aria-label'), $('.chart p').textContent]") == [text, text]
    numbers = plot.eval("texts('.chart tbody tr')")
    assert [len(numbers), numbers[2]] == [5, "1overflow512 = 2⁹ 0x1p+9512 = 2⁹ 0x1p+9"]
    assert plot.eval("$$('.chart tr').map((row) => row.className).indexOf('divergent')") == 5


def test_infinite_zero_and_nan_scales_are_plotted(browser, page_of_six):
    """Such scales have lines of their own above and below the others."""
    browser.show_once(page_of_six)
    browser.open("trace-gogg", "infinite-1.0")
    heights = browser.eval("$$('.trajectory circle.got').map((mark) => Number(mark.getAttribute('cy')))")
    assert len(heights) == 3
    assert heights[2] < heights[0] == heights[1]
    assert "inf" in browser.eval("texts('.trajectory .tick')")
    assert browser.eval("axisOf([1, 2, 0, NaN]).ticks.at(-1)") == [-2, "≤ 0, nan"]


def test_a_passed_case_has_no_difference(browser, page_of_six):
    """
    Scales are compared up to the end of the shorter list.

    The first step that differs in float32 is the divergence; if there is none, the first one that differs in float64.
    """
    browser.show_once(page_of_six)
    browser.open("trace-gogg", "conforming-1.0")
    assert browser.eval("$$('.divergence, .divergent').length") == 0
    third, single = 1 / 3, float(np.float32(1 / 3))
    pairs = [([1, 2, 4], [1, 2]), ([1, single, 4], [1, third, 5]), ([1, third], [1, single])]
    assert [browser.eval("divergenceOf(...arguments)", *pair) for pair in pairs] == [None, 2, 1]


# --- numbers ---


def test_hex_floats_are_read_exactly(browser, page_of_six):
    """
    Powers of two, subnormals, the largest number, infinities and NaN are read; other texts are not numbers.

    Trailing zeros may be missing.
    """
    browser.show_once(page_of_six)
    values = [0.0, 1.0, 1.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, -3.0, 2.0**-149, 1 / 3, 2.0**127]
    for written in ([value.hex() for value in values], [short(value.hex()) for value in values]):
        assert [float(text) for text in browser.eval("arguments[0].map((text) => String(floatOf(text)))", written)] == values
    special = ["inf", "-inf", "nan", "-0x0.0p+0"]
    assert browser.eval("arguments[0].map((text) => decimal(floatOf(text)))", special) == ["inf", "-inf", "nan", "-0"]
    assert browser.eval("['words', '0x10', 'constructor'].map(floatOf)") == [None, None, None]


def test_powers_of_two_are_shown_as_powers(browser, page_of_six):
    """Short decimals are shown, too."""
    browser.show_once(page_of_six)
    texts = {65536.0: "65536 = 2¹⁶", 2.0**127: "2¹²⁷", 2.0**-10: "0.0009765625 = 2⁻¹⁰", 2.0**-149: "2⁻¹⁴⁹"}
    texts |= {1.0: "1", 2.0: "2", 3.0: "3", 0.0: "0"}
    assert browser.eval("arguments[0].map(readable)", list(texts)) == list(texts.values())
    exponents = [exponent for exponent in range(-1074, 1024) if exponent not in (0, 1)]
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = browser.eval("arguments[0].map((exponent) => readable(2 ** exponent).split('= ').at(-1))", exponents)
    assert powers == [f"2{str(exponent).translate(digits)}" for exponent in exponents]


FRACTIONS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


@pytest.mark.parametrize("dtype", FRACTIONS)
def test_elements_are_decoded_by_dtype(browser, page_of_six, dtype):
    """Patterns are special or evenly spread. The text of a float32 number has only the digits that determine it."""
    browser.show_once(page_of_six)
    bits, fraction = 4 * DIGITS[dtype], FRACTIONS[dtype]
    infinity = (1 << bits - 1) - (1 << fraction)
    patterns = [0, 1, (1 << fraction) - 1, 1 << fraction, infinity - 1, infinity, infinity + 1, 1 << bits - 1, (1 << bits) - 1]
    patterns += [(index * 0x9E3779B97F4A7C15) % (1 << bits) for index in range(300)]
    written = [f"{pattern:0{DIGITS[dtype]}x}" for pattern in patterns]
    texts = browser.eval("arguments[0].map((digits) => elementOf(digits, arguments[1]))", written, dtype)
    for pattern, text in zip(patterns, texts, strict=True):
        expected = float(decode(pattern, dtype))
        actual = float(np.float32(text)) if dtype in ("float32", "bfloat16") else float(text)
        both_nan = np.isnan(actual) and np.isnan(expected)
        assert both_nan or struct.pack("d", actual) == struct.pack("d", expected), (hex(pattern), text)


def test_bools_integers_and_complex_numbers_are_decoded(browser, page_of_six):
    """Long arrays are shown as repeated elements with their counts."""
    browser.show_once(page_of_six)
    texts = {
        ("00", "bool"): "False",
        ("01", "bool"): "True",
        ("ffffffff", "int32"): "-1",
        ("8" + "0" * 15, "int64"): str(-(2**63)),
    }
    texts |= {("3f80000040000000", "complex64"): "1+2i", ("3ff0000000000000c000000000000000", "complex128"): "1-2i"}
    assert browser.eval("arguments[0].map((element) => elementOf(...element))", list(texts)) == list(texts.values())
    array = {"dtype": "float32", "shape": [70000], "runs": [[34999, ["3f800000", "40000000"]], [2, ["7f800000"]]]}
    text = "float32(70000) (13f800000240000000) × 34999inf7f800000 × 2"
    assert browser.eval("arrayNode(arguments[0]).textContent", array) == text
    assert browser.eval("decodeRuns([[2, ['a', 'b']], [1, ['c']]])") == ["a", "b", "a", "b", "c"]
