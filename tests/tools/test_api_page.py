"""The API page is generated from the docstrings."""

import re

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("jax", reason="needs jax")
pytest.importorskip("mpi4py", reason="needs mpi4py")

from api_page import PAGE, page

import ampscale


def test_the_committed_page_matches_the_docstrings():
    """`make api` writes the page."""
    assert PAGE.read_text() == page()


def test_each_public_class_and_function_has_a_heading():
    """`LossScaleRule` has a heading, although `presets` imports it."""
    headings = re.findall(r"^### ampscale\.(?:\w+\.)?(\w+)$", PAGE.read_text(), re.MULTILINE)
    assert {name for name in ampscale.__all__ if callable(getattr(ampscale, name))} <= set(headings)
