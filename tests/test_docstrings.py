"""The examples in docstrings run and print what they show."""

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import ampscale
from ampscale.backends import registry

SOURCE = Path(ampscale.__file__).parent
FILES = [file for file in sorted(SOURCE.rglob("*.py")) if re.search("^ *>>> ", file.read_text("utf-8"), re.MULTILINE)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_docstring_examples_pass(file, monkeypatch):
    """Besides the names of its module, an example uses `np`, `anp` and `ampscale`."""
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))  # removes a backend that an example registers
    names = {"np": np, "anp": pytest.importorskip("autograd.numpy"), "ampscale": ampscale}
    path = file.relative_to(SOURCE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(path).removesuffix(".__init__"))
    failed, attempted = doctest.testmod(module, extraglobs=names)
    assert (failed, attempted > 0) == (0, True)
