"""The backends: the same furniture in each, the right one for an array, and every fast path equal to its definition."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from strategies import same, scales, trees

from ampscale import backends as names
from ampscale.backends import Backend, backend_of, generic, numpy
from ampscale.core import norms, overflow

MODULES = pytest.mark.parametrize("backend", [numpy, generic], ids=lambda backend: backend.NAME)
FURNITURE = [*Backend.__annotations__, *(name for name in vars(Backend) if not name.startswith("_"))]


@MODULES
def test_all_backends_have_the_same_furniture_in_the_same_order(backend):
    """Each module offers what the protocol lists, in its order, and nothing else."""
    offered = [name for name in vars(backend) if name in FURNITURE]
    assert offered == FURNITURE
    assert backend.__name__.rpartition(".")[2] == backend.NAME


def test_backends_are_listed_by_name():
    """Those for particular libraries come first, and the generic one last."""
    assert names() == ("numpy", "generic")


def test_an_array_finds_its_backend():
    """NumPy's arrays and scalars are NumPy's, as is a tree of nothing; other arrays are anybody's."""
    assert [backend_of(tree) for tree in (np.ones(1), np.float32(1), [None, {"w": np.ones(())}], None, [])] == [numpy] * 5
    assert backend_of([array_api_strict.ones(1)]) is generic
    assert numpy.owns(np.float16(1))
    assert not numpy.owns(array_api_strict.ones(1))
    assert generic.owns(array_api_strict.ones(1))
    assert not generic.owns([1.0])


@pytest.mark.clause("OVERFLOW-same-everywhere", "OVERFLOW-fused", "NORMS-fused")
@MODULES
@given(trees(), scales)
def test_every_fast_path_equals_its_definition(backend, tree, factor):
    """The verbs of a backend give the bits of the core's, for any values."""
    assert bool(backend.all_finite(tree)) == bool(overflow.all_finite(tree))
    for verb, definition in (
        (backend.unscale_and_check, overflow.unscale_and_check),
        (backend.unscale_check_and_norm, norms.unscale_check_and_norm),
    ):
        for dtype in (None, "float32"):
            assert same(verb(tree, factor, dtype=dtype), definition(tree, factor, dtype=dtype))
