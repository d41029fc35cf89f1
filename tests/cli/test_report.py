"""`ampscale report`: the contents of the page, for any number of steps, and the page in a browser."""

import base64
import html
import io
import math
import re
import time

import numpy as np
import pytest
from cli.run_samples import OVERFLOW, write_run, write_steps
from cli.runner import Runner
from PIL import Image

from ampscale.cli.report import report
from ampscale.diagnostics import Histogram, StepRecord, read_run
from ampscale.diagnostics.run_files import header_line, step_line

RUNNER = Runner(report)
FINE = {"finite": True, "applied": True, "measured_scale": 1.0}
DOT, BAR = re.compile(r'<circle cx="([\d.]+)%" cy="([\d.]+)%"'), re.compile(r"M(\d+) 100V(\d+)h1V100")
LINE = re.compile(r'class="line"[^>]* d="([^"]*)"')
FIRST_ROW = 18  # exponent of the first row of a picture: 3 above the largest exponent of float16
LIMITS = re.compile(r'<line class="limit"[^>]* y1="([\d.]+)%"')


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def page_of(path):
    """Write the page of a run and return it."""
    out = path.with_suffix(".html")
    assert RUNNER.printed(path) == [f"Page: {out}"]
    return out.read_text("utf-8")


def pixels(page):
    """Return the opacities in each picture: uint8, shape (rows, columns)."""
    texts = re.findall(r"data:image/png;base64,([^\"]*)", page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in texts]


def test_page_describes_the_run(path):
    """Summary, verdicts, gradients and scaler are text. Texts from the run file are escaped, so there is only one script."""
    page = page_of(write_run(path)).replace("<wbr>", "")
    text = html.unescape(re.sub(r"(<[^>]*>\s*)+", "|", page.partition("<main>")[2]))
    assert "40 steps: 37 applied, 3 skipped (7.5 %)" in text
    assert "started at 2¹⁶, was between 2¹³ and 2¹⁶, and is now 2¹³." in text
    assert "It is multiplied by 0.5 at every overflow" in text
    assert "Last 3 of 3 skipped steps and scale changes" in text
    assert "|searching|<i>overflow</i> at step 1|2|0|1|" in text
    assert "|<b>&amp;|100|0 %|0 %|< 2²|3|" in text
    assert "|layers.0.weight|110|20 %|40 %|" in text
    assert not {"i", "img", "iframe", "link", "object"} & set(re.findall(r"<(\w+)", page))
    assert page.count("<script") == 1


def test_page_cannot_load_anything(path):
    """The policy allows its script and style by their hashes, and pictures within the page."""
    page = page_of(write_run(path))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert re.fullmatch(r"default-src 'none'; img-src data:; script-src 'sha256-\S+'; style-src 'sha256-\S+'", policy)
    assert not re.search(r'(src|href)="(?!data:)|url\(|style="', page)


@pytest.mark.parametrize("steps", [40, 5000])
def test_every_skipped_step_is_drawn(path, steps):
    """Each skipped step has a dot at its scale, and is counted in a bar. The line shows the scale of every step."""
    skipped = (0, 1, 20, steps - 1)
    page = page_of(write_run(path, steps=steps, skipped=skipped))
    dots = [float(x) for x, _ in DOT.findall(page)]
    assert all(min(abs(100 * (step + 0.5) / steps - x) for x in dots) < 1 for step in skipped)
    bars = [int(bar) for bar, _ in BAR.findall(page)]
    assert bars == sorted({step * min(1000, steps) // steps for step in skipped})
    (line,) = LINE.findall(page)
    assert line.count("V") == 4 - 1  # the scale after the last step is not drawn


def test_line_of_many_steps_shows_all_extremes(path):
    """The line shows the smallest and the largest scale of each thousandth of the run, even if only one step has it."""
    scales = np.where(np.arange(10_000) % 2, 2.0**8, 2.0**10)
    scales[[2_469, 8_000]] = 2.0**20, 2.0**2
    records = (StepRecord(step, scale, scale, finite=True, applied=True) for step, scale in enumerate(scales.tolist()))
    (line,) = LINE.findall(page_of(write_steps(path, records)))
    corners = [(float(x), float(y)) for x, y in re.findall(r"[MH]([\d.e+]+)[ V]([\d.]+)", line)]
    assert len(corners) == 2000
    heights = sorted({y for _, y in corners})
    assert len(heights) == 4
    assert [round(x) for x, y in corners if y in (heights[0], heights[-1])] == [246, 800]


def test_lines_mark_the_range_of_float16(path):
    """The lines are at the lower ends of the rows for 2**16, 2**-14 and 2**-24, in this order."""
    page = page_of(write_run(path))
    rows = len(pixels(page)[1])
    lines = [round(rows * float(share) / 100) for share in LIMITS.findall(page)[:3]]
    assert lines == [FIRST_ROW - exponent + 1 for exponent in (16, -14, -24)]


def test_histograms_are_drawn_from_their_step_on(path):
    """
    The pictures show the histograms of `cli.run_samples` from step 10 of 40 on: for all gradients, and for each of the two.

    A row is an exponent of the scaled values. Its opacity, at most 15, grows with the square root of the number of values.
    """
    all_gradients, first, second = pixels(page_of(write_run(path)))
    start = first.shape[1] // 4
    assert not first[:, :start].any()
    assert (first[:, start:] == first[:, -1:]).all()
    levels = {FIRST_ROW - row: level for row, level in enumerate(first[:, -1].tolist()) if level}
    assert levels == {-30: 15, -26: 12, -21: 10}
    assert np.flatnonzero(second[:, -1]).tolist() == [FIRST_ROW - 14]
    assert np.count_nonzero(all_gradients[:, -1]) == 4


def test_histograms_of_unscaled_gradients_are_shifted(path):
    """Gradients that were measured after unscaling are shown at the scale of their step."""
    page = page_of(write_steps(path, [StepRecord(0, 2.0**10, 2.0**10, **FINE, histograms=(Histogram(-12, (5,)),))]))
    _, picture = pixels(page)
    assert np.flatnonzero(picture[:, 0]).tolist() == [FIRST_ROW - (-12 + 10)]
    assert "gradient 0" in page


EXTREMES = Histogram(2**62, (1,)), Histogram(-(2**62), (2,))
ODD = {
    "no-step": [],
    "one-step": [StepRecord(7, 1.0, 1.0, finite=True, applied=True)],
    "odd-scales": [
        StepRecord(0, *pair, finite=False, applied=False) for pair in ((0.0, math.inf), (math.inf, math.nan), (3.0, 3.3))
    ],
    "empty-histograms": [StepRecord(0, 1.0, 1.0, **FINE, histograms=(Histogram(0, ()),))],
    "hostile-exponents": [StepRecord(0, 1e300, 1.0, finite=True, applied=True, measured_scale=1e-300, histograms=EXTREMES)],
    "measured-at-inf": [StepRecord(0, math.inf, 1.0, finite=False, applied=False, measured_scale=math.inf, tensors=OVERFLOW)],
    "gradients-come-and-go": [StepRecord(0, 1.0, 1.0, **FINE, histograms=(Histogram(0, (1,)),) * n) for n in (2, 2, 1)],
}


@pytest.mark.parametrize("name", ODD)
def test_every_run_has_a_page(name, path):
    """The command neither raises an error nor warns."""
    page = page_of(write_steps(path, ODD[name]))
    assert "NaN" not in page
    assert "nan%" not in page


def test_steps_with_another_number_of_gradients_are_not_counted(path):
    """The table of gradients is over the steps with the most common number of gradients: two of three."""
    assert "Over 2 measured steps." in page_of(write_steps(path, ODD["gradients-come-and-go"]))


def test_page_of_many_steps_is_small(path):
    """20,000 steps give at most 1.5 MB, in at most five seconds; gradients beyond the worst two hundred have no picture."""
    names = [f"layer.{index}" for index in range(300)]
    histograms = tuple(Histogram(-40 + index % 30, tuple(range(1, 41))) for index in range(300))
    measured = StepRecord(0, 2.0**16, 2.0**16, finite=True, applied=True, measured_scale=2.0**16, histograms=histograms)
    lines = [step_line(measured).replace('"step":0', f'"step":{step}') for step in range(0, 20_000, 1000)]
    plain = step_line(StepRecord(1, 2.0**16, 2.0**16, finite=True, applied=True)).replace('"step":1', '"step":%d')
    text = "".join(line + "".join(plain % (1000 * part + step) for step in range(1, 1000)) for part, line in enumerate(lines))
    path.write_text(header_line(None, names) + text)
    started = time.process_time()
    page = page_of(path)
    assert time.process_time() - started < 5
    assert len(page) < 1_500_000
    assert len(pixels(page)) == 201
    assert "200 of 300 gradients are shown" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step 1\n", "line 1 must be the header of a run file"),
        (header_line(None, None) + "{}\n", "line 2: "),
    ],
    ids=["no header", "damaged step"],
)
def test_usage_error_has_a_message(text, message, path):
    """The exit code is 2, and no page is written."""
    path.write_text(text)
    assert message in RUNNER.error(path)
    assert list(path.parent.iterdir()) == [path]


def test_run_is_not_overwritten(tmp_path):
    """The run file has the name that its page has by default."""
    path = write_run(tmp_path / "run.html")
    assert "--out must not be the file that is read" in RUNNER.error(path)
    assert read_run(path).steps.size == 40


@pytest.fixture(scope="module")
def browser():
    """Start Chromium, as the tests of the conformance page do."""
    browsing = pytest.importorskip("reports.browsing", reason="the conformance suite is not part of this distribution")
    driver = browsing.chromium()
    yield browsing.Browser(driver)
    driver.quit()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Return the path of the page of a run of 3,000 steps."""
    path = write_run(tmp_path_factory.mktemp("page") / "run.jsonl", steps=3000, names=["a." * 60, "second"])
    page_of(path)
    return path.with_suffix(".html")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_page_is_readable(browser, page_file, width, scheme):
    """The page fits the width of the window, has no text of low contrast, and causes neither errors nor requests."""
    from reports import browsing

    browser.errors()  # discard those of earlier pages
    browser.requests()
    browser.show(page_file, width=width, prefers_color_scheme=scheme)
    assert browser.eval("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert [request for request in browser.requests() if not request.startswith(("file:", "data:"))] == []
    assert browser.errors() == []
    assert [text for ratio, text in browser.eval(browsing.CONTRASTS) if ratio < 4.5] == []


def test_gradient_is_chosen_by_keyboard(browser, page_file):
    """One picture is shown at a time. Tables that scroll can have the focus, too."""
    browser.show(page_file)
    shown = "$$('figure.layer').filter((node) => node.checkVisibility()).map((node) => node.innerText.split('\\n')[0])"
    assert browser.eval(shown) == ["all gradients"]
    browser.eval("$('#layer').focus()")
    browser.press("end")
    assert browser.eval(shown) == ["second"]
    assert browser.eval("$$('.scroll').every((node) => node.tabIndex === 0)")


def test_page_works_without_scripts(browser, page_file):
    """All pictures are shown. The list for choosing a gradient is hidden."""
    browser.send_command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.show(page_file)
        root = browser.send_command("DOM.getDocument", depth=-1)["root"]["nodeId"]
        for selector, count in (("#choice[hidden]", 1), ("figure[hidden]", 0)):
            nodes = browser.send_command("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"]
            assert len(nodes) == count
    finally:
        browser.send_command("Emulation.setScriptExecutionDisabled", value=False)
