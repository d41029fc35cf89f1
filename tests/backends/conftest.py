"""A registry to add to, and a made-up backend."""

from types import SimpleNamespace

import array_api_strict
import pytest

from ampscale.backends import choice, generic, registry
from ampscale.backends.protocol import CONTENTS


@pytest.fixture
def known_backends(monkeypatch):
    """What is registered; afterwards it is as it was."""
    for name in ("_loaded", "_failures", "_owners"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    yield registry
    choice._usable.cache_clear()


@pytest.fixture
def make_backend():
    """Makes a backend for array_api_strict: the generic one's verbs, under another name, and anything that is given."""

    def made(name="strict", **contents):
        own = {
            "NAME": name,
            "owns": lambda array: type(array).__module__.startswith("array_api_strict"),
            "namespace": lambda: array_api_strict,
            "devices": lambda: ("cpu",),
        }
        return SimpleNamespace(**{each: getattr(generic, each) for each in CONTENTS} | own | contents)

    return made
