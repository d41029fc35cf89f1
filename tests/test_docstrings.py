"""Docstrings: their examples run, public functions and classes have an example, and none opens with a question word."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import ampscale
from ampscale.backends import registry

SOURCE = Path(ampscale.__file__).parent
PACKAGES = ("", ".checkpoints", ".diagnostics", ".mindformers", ".mindspore", ".optimizers", ".paddle", ".simulation", ".torch")
QUESTION = re.compile(r"(What|Whether|Which|Where|How|As|And|Its)\b")
FILES = [file for file in sorted(SOURCE.rglob("*.py")) if re.search("^ *>>> ", file.read_text("utf-8"), re.MULTILINE)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_docstring_examples_pass(file, monkeypatch):
    """Besides the names of its module, an example uses `np`, `anp` and `ampscale`."""
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))  # removes a backend that an example registers
    names = {"np": np, "anp": pytest.importorskip("autograd.numpy"), "ampscale": ampscale}
    path = file.relative_to(SOURCE.parent).with_suffix("").parts
    for library in {"torch", "jax"} & set(path):
        pytest.importorskip(library, reason=f"needs {library}")
    module = importlib.import_module(".".join(path).removesuffix(".__init__"))
    failed, attempted = doctest.testmod(module, extraglobs=names)
    assert failed == 0
    assert attempted > 0


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_and_classes_have_an_example(package):
    """Protocols, and classes without an `__init__` of their own, such as NamedTuples and enumerations, need no example."""
    if package == ".torch":
        pytest.importorskip("torch", reason="needs torch")
    module = importlib.import_module(f"ampscale{package}")
    public = {name: getattr(module, name) for name in module.__all__}
    classes = {name for name, value in public.items() if inspect.isclass(value) and "__init__" in vars(value)}
    functions = {name for name, value in public.items() if inspect.isfunction(value)}
    protocols = {name for name in classes if getattr(public[name], "_is_protocol", False)}
    documented = sorted((classes - protocols) | functions)
    assert [name for name in documented if ">>>" not in (inspect.getdoc(public[name]) or "")] == []


def test_no_docstring_opens_with_a_question_word():
    """How, As, And and Its are rejected, too: docstrings of functions begin with a verb, of classes and modules with a noun."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    docstrings = (ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented))
    assert [text for text in docstrings if QUESTION.match(text)] == []
