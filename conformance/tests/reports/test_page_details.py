"""What the page tells of one result: words, the scale as a picture, numbers beside their bits."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.floats import decode
from ampscale_conformance.reports.tables import short
from reports import browsing, made

# --- details ---


def test_details_tell_what_was_asked_and_what_came(browser, few):
    """The message, the clause with its sentence and its Chinese source, the fault, every call, where it ran."""
    browser.show(few)
    browser.click(browsing.cell("walks-gggo", "late-1.0"))
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
    assert browser.ask("$('.snippet').textContent") == made.SNIPPET
    assert "It was run, and did show it." in browser.ask("$('#details-body').textContent")
    browser.click(".copy")
    assert browser.until("$('.copy').textContent === 'Copied'")
    assert browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == made.SNIPPET


def test_whether_the_script_was_run_is_told(browser, few):
    """A script that was run and did not show it is not passed off as one that did, nor one that was not run."""
    browser.show(few)
    said = [{"snippet": "x"}, {"snippet": "x", "reproduced": False}, {"snippet": "x", "reproduced": True}]
    assert browser.ask("arguments[0].map((result) => snippetSection(result).querySelector('p').textContent)", said) == [
        "Without ampscale. It was not run.",
        "Without ampscale. It was run, and did not show it.",
        "Without ampscale. It was run, and did show it.",
    ]
    assert browser.ask("snippetSection({})") is None


def test_a_script_is_selected_where_the_clipboard_is_closed(browser, few):
    """So that it can still be copied."""
    browser.show(few, "#case=case-fail&implementation=every-2")
    browser.driver.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error('closed'))")
    browser.click(".copy")
    assert browser.until("$('.copy').textContent === 'Press Ctrl+C'")
    assert browser.ask("String(getSelection())").strip() == made.SNIPPET.strip()


def test_a_case_and_an_implementation_have_details_too(browser, few):
    """From the heads of rows and columns, and from there to a result."""
    browser.show(few)
    browser.click("tr.case th button")
    verdicts = ["pass", "fail", "error", "pass", "unsupported"]
    assert browser.ask("$$('.choices .badge').map((badge) => badge.textContent)") == verdicts
    browser.click(".choices li:nth-child(2) button")
    assert browser.ask("$('#details p.message').textContent").startswith("after step 2")
    browser.press("escape")
    assert browser.until(browsing.CLOSED)
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
        (browsing.LATE, "walks gggg", "after step 2"),
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
    browser.click(browsing.cell("walks-gggg", "late-1.0"))
    assert browser.ask("location.hash") == browsing.LATE
    browser.driver.execute_script("location.hash = 'case=walks-gggo&implementation=infinite-1.0'")
    assert browser.until("$('#details-title').textContent === 'walks gggo'")
    browser.press("escape")
    assert browser.until(browsing.CLOSED)
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
    # 2^10, 2^10, 2^9, 2^9, 2^10: on the lines of these powers, which lie equally far apart.
    lines = browser.ask("$$('.chart > .trajectory line.rule').map((line) => Number(line.getAttribute('y1')))")
    assert [low - high for low, high in pairwise(lines)] == pytest.approx([lines[0] - lines[1]] * 3, abs=0.02)
    assert (points[2][1], points[0][1]) == (lines[1], lines[2])
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
    every = list(range(-1074, 1024))
    assert browser.ask("arguments[0].map((exponent) => exponentOf(2 ** exponent))", every) == every
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
