"""The matrix as one page of HTML, with its style, its script and its data inside: it needs nothing else, and no network."""

import base64
import hashlib
import re
from pathlib import Path

from ..matrix import Matrix

_FOLDER = Path(__file__).parent
_SCRIPTS = ("words.js", "chart.js", "grid.js", "details.js", "page.js")

# Inside a script element, what could end it or open a comment, and half of a surrogate pair, which no UTF-8 holds.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def html_of(matrix: Matrix) -> str:
    """
    The matrix as a page that a browser opens from a file.

    Its content security policy names its own script and style by their hashes and allows nothing else: the page cannot ask
    the network for anything, and nothing in a report can become a script.
    """
    script = "\n".join((_FOLDER / name).read_text("utf-8") for name in _SCRIPTS)
    style = (_FOLDER / "page.css").read_text("utf-8")
    parts = {
        "policy": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'",
        "style": style,
        "script": script,
        "data": _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", matrix.to_json()),
    }
    template = (_FOLDER / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
