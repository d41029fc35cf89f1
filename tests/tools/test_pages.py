"""The generated pages of docs/ equal those that their generators write."""

from importlib import import_module

import pytest

REQUIRED = {"api_page": ("torch", "jax", "mpi4py")}  # by the modules that the page documents


@pytest.mark.parametrize("generator", ["api_page", "calls_page", "pains_page", "tested_page"])
def test_the_committed_page_is_up_to_date(generator):
    """After a change, run `make api`, `make pains` or `make tested`."""
    for library in REQUIRED.get(generator, ()):
        pytest.importorskip(library, reason=f"needs {library}")
    module = import_module(generator)
    assert module.PAGE.read_text("utf-8") == module.page()
