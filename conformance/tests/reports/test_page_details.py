"""What the page tells of one result: words, the scale as a picture, numbers beside their bits."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from ampscale_conformance.model.bits import DIGITS
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.floats import decode
from ampscale_conformance.reports.tables import short
from reports import browsing, made

# --- details ---


def test_details_tell_what_was_asked_and_what_came(browser, few):
    """The message, the clause with its sentence and its Chinese source, the fault, every call, where it ran."""
    browser.show(few)
    browser.click(browsing.cell("walks-gggo", "late-1.0"))
    body = browser.ask("$('#details').textContent")
    law = clauses()["MACHINE-growth-window"]
    assert browser.ask("['h2', '.badge', 'p.message'].map((css) => $(`#details ${css}`).textContent)") == [
        "walks gggo",
        "fail",
        "after step 2: expected 2048.0, got 1024.0",
    ]
    assert law.sentence.replace("`", "") in body
    assert browser.ask("texts('.sources li')") == [source.replace("`", "") for source in law.sources]
    assert browser.ask("$('.sources .zh').lang") == "zh-Hans"
    assert browser.ask("$$('.sources code, .sentence code').length") == sum(
        text.count("`") // 2 for text in (law.sentence, *law.sources)
    )
    assert "spec/30-machine.md#machine-growth-window--must" in body
    assert "off by one: a window is longer or shorter than its interval" in body
    assert browser.ask("texts('li:has(b)')") == [
        "create(rule(init_scale=1024, growth_interval=2, float64_factor=True)) → handle 0",
        "read_scale(handle 0) → 1024 = 2¹⁰ 0x1p+10",
        "update(handle 0, finite) → handle 1",
        "read_scale(handle 1) → 1024 = 2¹⁰ 0x1p+10",
        "update(handle 1, finite) → handle 2",
        "read_scale(handle 2) → 1024 = 2¹⁰ 0x1p+10",
    ]
    assert f"python{browser.ask('DATA.implementations[0].environment.python')}" in body


def test_arrays_are_shown_in_numbers_and_bits(browser, few):
    """Each element in decimals, with its hex digits beside it."""
    browser.stay(few)
    browser.open("trees-are-scaled", "right-1.0")
    assert browser.ask("texts('li:has(b)')")[1].startswith(
        "scale(handle 0, {weights: [float16(3)1.53e00-080005.960464477539063e-80001, bfloat16(1)34040], bias: (float32(2)"
    )
    assert browser.ask("texts('.element')")[4:6] == ["0.13dcccccd", "inf7f800000"]


def test_the_script_can_be_copied(browser, few):
    """To the clipboard; where that is closed the script is selected, so that it can still be copied."""
    browser.tell("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.show(few, "#case=case-fail&implementation=every-2")
    assert browser.ask("$('pre').textContent") == made.SNIPPET
    browser.click(".bar:has(output) button")
    browser.until("$('output').textContent === 'Copied'")
    assert browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == made.SNIPPET
    browser.ask("(navigator.clipboard.writeText = () => Promise.reject(new Error('closed'))) && null")
    browser.click(".bar:has(output) button")
    browser.until("$('output').textContent === 'Selected: press Ctrl+C'")
    assert browser.ask("String(getSelection())").strip() == made.SNIPPET.strip()


def test_whether_the_script_was_run_is_told(browser, few):
    """A script that was run and did not show it is not passed off as one that did, nor one that was not run."""
    browser.stay(few)
    told = {None: "not run", False: "run, and did not reproduce the failure", True: "run, and reproduced the failure"}
    for reproduced, words in told.items():
        result = {"snippet": "x"} | ({} if reproduced is None else {"reproduced": reproduced})
        assert f"Without ampscale. It was {words}.Copyx" in browser.ask("snippetSection(arguments[0]).textContent", result)
    assert browser.ask("snippetSection({})") is None


def test_a_case_and_an_implementation_have_details_too(browser, few):
    """From the heads of rows and columns, and from there to a result."""
    browser.show(few)
    browser.click("tr.case th button")
    assert browser.ask("texts('.choices li')") == [
        "passright 1.0",
        "faillate 1.0",
        f"error{made.HOSTILE} 1.0",
        "passinfinite 1.0",
        "unsupportedfixed 1.0",
    ]
    browser.click(".choices li:nth-child(2) button")
    assert browser.ask("$('#details p.message').textContent").startswith("after step 2")
    browser.press("escape")
    assert browser.until_closed() == "walks ggggMACHINE-state ·\xa0L0"
    browser.click("thead th:nth-child(3) button")
    assert browser.ask("[...texts('.sentence'), ...texts('section:first-of-type dl > *')]") == [
        "9 of 17 passed, 8 fail",
        *("machine", "8 of 16 passed, 8 fail"),
        *("scaling", "1 of 1 passed"),
    ]
    assert browser.ask("$$('.choices li').length") == 8


@pytest.mark.parametrize(
    ("fragment", "title", "said"),
    [
        (browsing.LATE, "walks gggg", "after step 2"),
        ("#case=walks-gggg", "walks gggg", "Results"),
        ("#implementation=late-1.0", "late", "9 of 17 passed"),
        ("#case=walks-gggg&implementation=unknown", "Not in this matrix", "walks-gggg unknown"),
        ("#case=unknown", "Not in this matrix", "unknown"),
    ],
)
def test_a_deep_link_opens(browser, few, fragment, title, said):
    """A result, a case, an implementation; and one that leads nowhere says so."""
    browser.show(few, fragment)
    assert browser.ask("$('dialog').open")
    assert browser.ask("$('#details-title').textContent") == title
    assert said in browser.ask("$('#details').textContent")


def test_the_address_follows_what_is_open(browser, few):
    """It can be copied while details are open, a changed address opens others, and closing clears it."""
    browser.show(few)
    browser.click(browsing.cell("walks-gggg", "late-1.0"))
    assert browser.ask("location.hash") == browsing.LATE
    browser.driver.execute_script("location.hash = 'case=walks-gggo&implementation=infinite-1.0'")
    browser.until("$('#details-title').textContent === 'walks gggo'")
    browser.press("escape")
    browser.until_closed()
    assert browser.ask("location.hash") in ("", "#")


# --- the scale ---


def test_the_scale_is_drawn_point_by_point(browser, few):
    """As many points as there are scales, the overflows marked, and the first difference marked where it is."""
    browser.show(few)
    browser.open("walks-gogg", "late-1.0")
    marks = ["circle.wanted", "circle.got", ".band", ".sign", "line.divergence", "circle.divergent", ".rule"]
    assert browser.ask("arguments[0].map((css) => $$(`.trajectory ${css}`).length)", marks) == [5, 5, 1, 4, 1, 1, 4]
    place = "[...css].map((one) => ['cx', 'cy', 'x1', 'y1'].map((name) => Number(one.getAttribute(name))))"
    points, (parted,), (divergence,), rules = (
        browser.ask(place.replace("css", f"$$('.trajectory {css}')"))
        for css in ("circle.wanted", "circle.divergent", "line.divergence", ".rule")
    )
    assert divergence[2] == parted[0] == points[4][0]
    # 2^10, 2^10, 2^9, 2^9, 2^10: on the lines of these powers, which lie equally far apart.
    lines = [rule[3] for rule in rules]
    heights = [point[1] for point in points]
    assert [low - high for low, high in pairwise(lines)] == pytest.approx([lines[0] - lines[1]] * 3)
    assert lines[0] > lines[1]
    assert heights == [lines[2], lines[2], lines[1], lines[1], lines[2]]
    assert parted[1] == lines[1]
    assert browser.ask("texts('.trajectory .tick')") == ["2⁸", "2⁹", "2¹⁰", "2¹¹", "0", "1", "2", "3", "4"]
    words = "The scale over 4 steps, 1 overflow. First difference after step 4: expected 1024 = 2¹⁰, got 512 = 2⁹."
    assert browser.ask("[$('.trajectory').getAttribute('aria-label'), $('.chart p').textContent]") == [words, words]
    numbers = browser.ask("texts('.chart tbody tr')")
    assert [len(numbers), numbers[2]] == [5, "2overflow512 = 2⁹ 0x1p+9512 = 2⁹ 0x1p+9"]
    assert browser.ask("$$('.chart tr').map((row) => row.className).indexOf('divergent')") == 5


def test_a_scale_without_a_logarithm_has_a_place(browser, few):
    """An infinite one lies above the others, on a line that says so."""
    browser.stay(few)
    browser.open("walks-gogg", "infinite-1.0")
    heights = browser.ask("$$('.trajectory circle.got').map((one) => Number(one.getAttribute('cy')))")
    assert len(heights) == 3
    assert heights[2] < heights[0] == heights[1]
    assert "inf" in browser.ask("texts('.trajectory .tick')")
    assert browser.ask("axisOf([1, 2, 0, NaN]).ticks.at(-1)") == [-2, "≤ 0, nan"]


def test_what_passed_does_not_part(browser, few):
    """And where the precisions differ, they part only beyond the float32 in which they were compared."""
    browser.stay(few)
    browser.open("walks-gogg", "right-1.0")
    assert browser.ask("$$('.divergence, .divergent').length") == 0
    third, single = 1 / 3, float(np.float32(1 / 3))
    pairs = [([1, 2, 4], [1, 2]), ([1, single, 4], [1, third, 5]), ([1, third], [1, single])]
    assert [browser.ask("divergenceOf(...arguments)", *pair) for pair in pairs] == [None, 2, 1]


# --- numbers in words ---


def test_floats_are_read_as_python_writes_them(browser, few):
    """Bit for bit: powers, subnormals, the largest, and what is no number."""
    browser.stay(few)
    values = [0.0, 1.0, 1.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, -3.0, 2.0**-149, 1 / 3, 2.0**127]
    for written in ([value.hex() for value in values], [short(value.hex()) for value in values]):
        assert [float(text) for text in browser.ask("arguments[0].map((text) => String(floatOf(text)))", written)] == values
    special = ["inf", "-inf", "nan", "-0x0.0p+0"]
    assert browser.ask("arguments[0].map((text) => decimal(floatOf(text)))", special) == ["inf", "-inf", "nan", "-0"]
    assert browser.ask("['words', '0x10', 'constructor'].map(floatOf)") == [None, None, None]


def test_powers_of_two_are_told_as_powers(browser, few):
    """With their decimals where those are short."""
    browser.stay(few)
    told = {65536.0: "65536 = 2¹⁶", 2.0**127: "2¹²⁷", 2.0**-10: "0.0009765625 = 2⁻¹⁰", 2.0**-149: "2⁻¹⁴⁹"}
    told |= {1.0: "1", 2.0: "2", 3.0: "3", 0.0: "0"}
    assert browser.ask("arguments[0].map(readable)", list(told)) == list(told.values())
    every = [exponent for exponent in range(-1074, 1024) if exponent not in (0, 1)]
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = browser.ask("arguments[0].map((exponent) => readable(2 ** exponent).split('= ').at(-1))", every)
    assert powers == [f"2{str(exponent).translate(digits)}" for exponent in every]


FRACTIONS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


@pytest.mark.parametrize("dtype", FRACTIONS)
def test_elements_are_read_as_their_dtype_reads_them(browser, few, dtype):
    """A spread of all patterns, specials among them; float32 in the fewest digits that give it back."""
    browser.stay(few)
    bits, fraction = 4 * DIGITS[dtype], FRACTIONS[dtype]
    infinity = (1 << bits - 1) - (1 << fraction)
    patterns = [0, 1, (1 << fraction) - 1, 1 << fraction, infinity - 1, infinity, infinity + 1, 1 << bits - 1, (1 << bits) - 1]
    patterns += [(index * 0x9E3779B97F4A7C15) % (1 << bits) for index in range(300)]
    written = [f"{pattern:0{DIGITS[dtype]}x}" for pattern in patterns]
    said = browser.ask("arguments[0].map((digits) => elementOf(digits, arguments[1]))", written, dtype)
    for pattern, text in zip(patterns, said, strict=True):
        wanted = float(decode(pattern, dtype))
        got = float(np.float32(text)) if dtype in ("float32", "bfloat16") else float(text)
        assert struct.pack("d", got) == struct.pack("d", wanted) or (np.isnan(got) and np.isnan(wanted)), (hex(pattern), text)


def test_other_values_are_read_too(browser, few):
    """Bools, integers with their sign, complex numbers of two parts; long arrays by what is repeated and how often."""
    browser.stay(few)
    told = {
        ("00", "bool"): "False",
        ("01", "bool"): "True",
        ("ffffffff", "int32"): "-1",
        ("8" + "0" * 15, "int64"): str(-(2**63)),
    }
    told |= {("3f80000040000000", "complex64"): "1+2i", ("3ff0000000000000c000000000000000", "complex128"): "1-2i"}
    assert browser.ask("arguments[0].map((element) => elementOf(...element))", list(told)) == list(told.values())
    array = {"dtype": "float32", "shape": [70000], "runs": [[69999, ["3f800000"]], [1, ["7f800000"]]]}
    assert browser.ask("arrayNode(arguments[0]).textContent", array) == "float32(70000)13f800000 × 69999inf7f800000"
    assert browser.ask("decodeRuns([[2, ['a', 'b']], [1, ['c']]])") == ["a", "b", "a", "b", "c"]
