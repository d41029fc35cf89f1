"""The page as a file: whole in itself, closed to what reports say, and small."""

import base64
import hashlib
import json
import re

import pytest
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from reports import made

FEW = matrix.of([made.said(made.report_of(made.Late())), made.said(made.report_of(made.Raising("<b>raising</b> {{script}}")))])
PAGE = render.html_of(FEW)


def parts(text):
    """The style, the data and the script of a page; and what is left of it without them."""
    inside = re.compile(r"(<(?:style|script)[^>]*>)(.*?)(</(?:style|script)>)", re.DOTALL)
    return [part for _, part, _ in inside.findall(text)], inside.sub(r"\1\3", text)


def data_of(text):
    return json.loads(parts(text)[0][1])


def test_the_data_is_the_matrix():
    """Whatever words a report has: nothing can close its element or open a comment, and all can be written as UTF-8."""
    data = parts(PAGE)[0][1]
    assert json.loads(data) == json.loads(FEW.to_json())
    assert not set("<>&") & set(data)
    assert PAGE.encode("utf-8")
    assert "\\ud800" in data
    assert "</script><!--" in json.dumps(json.loads(data))
    for reports in [[], [made.said(made.every_verdict())]]:
        assert len(data_of(render.html_of(matrix.of(reports)))["implementations"]) == len(reports)


def test_the_page_needs_nothing_else():
    """No element names a file or an address to load, the style has no address, and no part is left to be filled in."""
    (style, data, script), rest = parts(PAGE)
    assert not re.search(r"<(link|img|iframe|object|embed|base|audio|video)\b", rest)
    assert not re.search(r"\b(src|srcset|action|background|style|on\w+)=|href=\"[^#]|\{\{", rest)
    assert not re.search(r"url\(|@import|\{\{", style)
    assert re.findall(r"https?://[\w.]+[^\s\"']*", script) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import|eval|Function|innerHTML|sendBeacon)\b|\{\{", script)
    assert data.count("{{") == json.dumps(json.loads(data)).count("{{script}}")


@pytest.mark.parametrize("text", [PAGE, *(page.read_bytes().decode() for page in made.COMMITTED)], ids=["made", "committed"])
def test_the_policy_lets_its_own_script_run_and_nothing_else(text):
    """The hashes are those of the script and the style as they stand in the page, and everything else is closed."""
    (style, _, script), rest = parts(text)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*)">', rest)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    assert policy == "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'".format(*hashes)


def test_the_committed_page_is_the_present_one():
    """Its style and its script are those of this folder, and its data are those of the matrix beside it."""
    (committed,) = made.COMMITTED
    assert parts(committed.read_bytes().decode())[0][::2] == parts(PAGE)[0][::2]
    assert json.loads((committed.parent / "matrix.json").read_bytes()) == data_of(committed.read_text("utf-8"))


def test_thirty_implementations_fit_in_three_megabytes(many):
    """With 130 cases and every transcript; what they share is written once."""
    text = many.read_text("utf-8")
    data = data_of(text)
    results = [result for one in data["implementations"] for result in one["results"].values()]
    assert (len(data["implementations"]), len(data["cases"])) == (30, 130)
    assert sum("transcript" in result for result in results) > 3600
    assert len(text.encode("utf-8")) < 3e6
