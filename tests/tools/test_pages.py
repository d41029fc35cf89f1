"""The generated pages of docs/ equal those that their generators write."""

from importlib import import_module

import pytest


@pytest.mark.parametrize("generator", ["calls_page", "pains_page", "tested_page"])
def test_the_committed_page_is_up_to_date(generator):
    """After a change, run `make api`, `make pains` or `make tested`."""
    module = import_module(generator)
    assert module.PAGE.read_text("utf-8") == module.page()
