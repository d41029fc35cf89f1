"""The API page is generated from the docstrings."""

import pytest

pytest.importorskip("torch", reason="needs torch")

from api_page import PAGE, page


def test_the_committed_page_matches_the_docstrings():
    """`make api` writes it."""
    assert PAGE.read_text() == page()
