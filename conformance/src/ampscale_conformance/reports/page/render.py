"""HTML page of the matrix in one file, with its styles, scripts and data; it requires no network."""

import base64
import hashlib
import re
from pathlib import Path

from ..matrix import Matrix

_FOLDER = Path(__file__).parent
_SCRIPTS = ("words.js", "chart.js", "grid.js", "details.js", "page.js")

# Characters that could end a script element or open a comment, and surrogates, which UTF-8 lacks.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def html_of(matrix: Matrix) -> str:
    """
    Return the matrix as an HTML page that a browser can open from a file.

    The content security policy allows only the page's own script and style, by their hashes. Therefore the page cannot access
    the network, and no text in a report can run as a script.
    """
    script = "\n".join((_FOLDER / name).read_text("utf-8") for name in _SCRIPTS)
    style = (_FOLDER / "page.css").read_text("utf-8")
    parts = {
        "policy": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'",
        "style": style,
        "script": script,
        "data": _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", matrix.to_json()),
    }
    template = (_FOLDER / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
