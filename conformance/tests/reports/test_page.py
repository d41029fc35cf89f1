"""The page as a file: whole in itself, closed to what reports say, and small."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from reports import made

FEW = matrix.of([made.said(made.report_of(made.Late())), made.said(made.report_of(made.Raising("<b>raising</b> {{script}}")))])


class Reader(HTMLParser):
    """Elements with their attributes, and the text of each script and style."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag in ("script", "style")
        if self.inside:
            self.texts.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            tag, attrs, text = self.texts[-1]
            self.texts[-1] = (tag, attrs, text + data)


def data_of(text):
    return json.loads(next(inside for _, attrs, inside in Reader(text).texts if attrs.get("id") == "matrix-data"))


def test_the_data_is_the_matrix():
    """What stands in the page is what the matrix says, whatever words a report has."""
    assert data_of(render.html_of(FEW)) == json.loads(FEW.to_json())


def test_the_page_needs_nothing_else():
    """No element names a file or an address to load, the style has no address, and no part is left to be filled in."""
    text = render.html_of(FEW)
    for tag, attrs in Reader(text).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "audio", "video")
        assert not {"src", "srcset", "action", "background", "style", "onclick", "onload"} & set(attrs)
        assert attrs.get("href", "#").startswith("#")
    style = next(inside for tag, _, inside in Reader(text).texts if tag == "style")
    assert "url(" not in style
    assert "@import" not in style
    script = Reader(text).texts[-1][2]
    assert re.findall(r"https?://[\w.]+[^\s\"']*", script) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import|eval|Function|innerHTML|sendBeacon)\b", script)
    assert "{{" not in text.replace(json.dumps("{{script}}")[1:-1], "")


def test_the_policy_lets_its_own_script_run_and_nothing_else():
    """The hashes are those of the script and the style as they stand in the page, and everything else is closed."""
    reader = Reader(render.html_of(FEW))
    (policy,) = (attrs["content"] for tag, attrs in reader.elements if attrs.get("http-equiv") == "Content-Security-Policy")
    said = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    hashes = {
        tag: f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
        for tag, attrs, inside in reader.texts
        if "type" not in attrs
    }
    assert said == {"default-src": "'none'", "script-src": hashes["script"], "style-src": hashes["style"]}


def test_no_words_end_the_data():
    """Nothing within it can close its element or open a comment, and every character can be written as UTF-8."""
    text = render.html_of(FEW)
    inside = text.partition('id="matrix-data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(inside)
    assert text.encode("utf-8")
    assert "\\ud800" in inside
    assert "</script><!--" in json.dumps(data_of(text))


def test_thirty_implementations_fit_in_three_megabytes(many):
    """With 130 cases and every transcript; what they share is written once."""
    text = many.read_text("utf-8")
    implementations = data_of(text)["implementations"]
    transcripts = sum("transcript" in result for one in implementations for result in one["results"].values())
    assert (len(implementations), len(data_of(text)["cases"])) == (30, 130)
    assert transcripts > 3600
    assert len(text.encode("utf-8")) < 3e6


def test_the_committed_page_is_the_present_one():
    """Its style and its script are those of this folder, so that no change of them leaves the page behind."""
    committed = Path(__file__).parents[2] / "docs" / "matrix.html"
    own = [inside for _, attrs, inside in Reader(render.html_of(FEW)).texts if "type" not in attrs]
    assert [inside for _, attrs, inside in Reader(committed.read_text("utf-8")).texts if "type" not in attrs] == own


@pytest.mark.parametrize("reports", [[], [made.said(made.every_verdict())]])
def test_any_number_of_reports_makes_a_page(reports):
    """None, and one."""
    assert len(data_of(render.html_of(matrix.of(reports)))["implementations"]) == len(reports)
