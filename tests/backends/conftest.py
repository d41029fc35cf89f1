"""Fixtures: a registry that is restored after a test, and a backend for array_api_strict."""

from types import SimpleNamespace

import array_api_strict
import pytest

from ampscale.backends import choice, generic, registry
from ampscale.backends.protocol import CONTENTS


@pytest.fixture
def known_backends(monkeypatch):
    """Return the registry module; its contents are restored after the test."""
    for name in ("_loaded", "_failures", "_owners"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    yield registry
    choice._usable.cache_clear()


@pytest.fixture
def make_backend():
    """Return a function that creates a backend for array_api_strict: the generic backend with some contents replaced."""

    def make(name="strict", **contents):
        defaults = {
            "NAME": name,
            "owns": lambda array: type(array).__module__.startswith("array_api_strict"),
            "namespace": lambda: array_api_strict,
            "devices": lambda: ("cpu",),
        }
        return SimpleNamespace(**{item: getattr(generic, item) for item in CONTENTS} | defaults | contents)

    return make
