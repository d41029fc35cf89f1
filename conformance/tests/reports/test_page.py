"""The page as a file: it is self-contained, small, and safe against text of reports."""

import base64
import hashlib
import json
import re
from types import SimpleNamespace

from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from reports import samples

FEW = matrix.of([samples.report_dict(samples.Late()), samples.report_dict(samples.Raising("<b>raising</b> {{script}}"))])
PAGE = render.html_of(FEW)


def parts(text):
    """Return the contents of the style, data and script elements of a page, and the page without them."""
    inside = re.compile(r"(<(?:style|script)[^>]*>)(.*?)(</(?:style|script)>)", re.DOTALL)
    return [part for _, part, _ in inside.findall(text)], inside.sub(r"\1\3", text)


def data_of(text):
    return json.loads(parts(text)[0][1])


def test_the_data_is_the_matrix():
    """A page can have no report or one."""
    assert json.loads(parts(PAGE)[0][1]) == json.loads(FEW.to_json())
    for reports in [[], [samples.to_dict(samples.every_verdict())]]:
        assert len(data_of(render.html_of(matrix.of(reports)))["implementations"]) == len(reports)


def test_the_data_is_escaped():
    """No text closes the element of the data or opens a comment, and the page can be encoded as UTF-8."""
    data = parts(PAGE)[0][1]
    assert not set("<>&") & set(data)
    assert PAGE.encode("utf-8")
    assert "\\ud800" in data
    assert "</script><!--" in json.dumps(json.loads(data))


def test_the_page_is_self_contained():
    """The page has no address of a file to load, and no placeholder."""
    (style, data, script), remainder = parts(PAGE)
    assert not re.search(r"<(link|img|iframe|object|embed|base|audio|video)\b", remainder)
    assert not re.search(r"\b(src|srcset|action|background|style|on\w+)=|href=\"[^#]|\{\{", remainder)
    assert not re.search(r"url\(|@import|\{\{", style)
    assert re.findall(r"https?://[\w.]+[^\s\"']*", script) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import|eval|Function|innerHTML|sendBeacon)\b|\{\{", script)
    assert data.count("{{") == json.dumps(json.loads(data)).count("{{script}}")


def test_the_policy_allows_only_the_script_and_the_style():
    """The hashes are those of the two elements."""
    (style, _, script), remainder = parts(PAGE)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*)">', remainder)
    hashes = [base64.b64encode(hashlib.sha256(element.encode()).digest()).decode() for element in (script, style)]
    assert policy == "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'".format(*hashes)


def test_the_committed_page_is_up_to_date():
    """The page is made from the committed matrix.json, and has less than 10 MB."""
    (committed,) = samples.COMMITTED
    encoded = (committed.parent / "matrix.json").read_text("utf-8").rstrip()
    is_equal = committed.read_text("utf-8") == render.html_of(SimpleNamespace(to_json=lambda: encoded))
    assert is_equal  # without the texts, which pytest would compare for hours
    assert committed.stat().st_size < 10e6


def test_thirty_implementations_fit_in_three_megabytes(page_of_thirty):
    """Each implementation has 130 cases, most of them with transcripts. Six reports are repeated five times."""
    text = page_of_thirty.read_text("utf-8")
    data = data_of(text)
    results = [result for implementation in data["implementations"] for result in implementation["results"].values()]
    assert (len(data["implementations"]), len(data["cases"])) == (30, 130)
    assert sum("transcript" in result for result in results) > 3600
    assert len(text.encode("utf-8")) < 3e6
