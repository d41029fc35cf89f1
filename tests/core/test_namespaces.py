"""Namespaces: the default."""

import array_api_strict
import numpy as np

from ampscale.core import namespaces
from ampscale.core.namespaces import default_namespace, namespace_of, provide_default


def test_last_provider_returns_the_default_namespace(monkeypatch):
    """It is called for a tree without arrays."""
    monkeypatch.setattr(namespaces, "_providers", [lambda: np])
    provide_default(lambda: array_api_strict)
    assert default_namespace() is array_api_strict
    assert namespace_of([None, {}]) is array_api_strict
