"""Tests of the rows of counts, memory and growth."""

import math
import sys

import array_api_compat.numpy
import numpy as np
import pytest
from rows import counts as count_rows
from rows import growth as growth_rows
from rows import memory as memory_rows

from ampscale import LossScaleRule
from ampscale.core.machine import transition

MIB = 2**20


def test_fit_returns_the_exponent_and_its_standard_error():
    """The expected values are computed by hand for four points."""
    points = [(math.exp(x), math.exp(y)) for x, y in ((0, 0.1), (1, 0.9), (2, 2.2), (3, 2.9))]
    exponent, error = growth_rows.fitted(points)
    assert exponent == pytest.approx(0.97)
    residuals = [y - (0.07 + 0.97 * x) for x, y in ((0, 0.1), (1, 0.9), (2, 2.2), (3, 2.9))]
    assert error == pytest.approx(math.sqrt(sum(r * r for r in residuals) / 2 / 5))


def test_traced_returns_the_peak_of_numpy():
    """Other threads of this process may allocate memory too, so the test uses the smallest of three measurements."""

    def least(run):
        return min(memory_rows.traced(run) for _ in range(3))

    size = 10 * MIB
    assert least(lambda: np.empty(size, np.uint8)) == pytest.approx(size, abs=4096)
    assert least(lambda: [np.empty(size, np.uint8).sum() for _ in range(3)]) == pytest.approx(size, abs=2**17)  # sum has a buffer


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can reset the peak of the resident set")
def test_resident_returns_the_peak_of_the_resident_set():
    """Memory that was freed during the call is included, also in a second measurement. A call without arrays needs little."""

    def touch():
        for _ in range(3):
            arrays = [np.ones(size, np.uint8) for size in 100 * [MIB // 2]]
        return arrays[0]

    for _ in range(2):
        assert 50 * MIB <= memory_rows.resident(touch) <= 110 * MIB
    assert memory_rows.resident(lambda: None) <= MIB


def test_calls_of_numpy_are_counted():
    """Calls from ampscale's modules and methods of arrays are counted; calls of other functions are not."""
    rule, array = LossScaleRule(), np.ones(10)
    state = rule.init()
    assert count_rows.numpy_calls(lambda: transition(rule, state, np.asarray(True))) > 10
    assert count_rows.numpy_calls(lambda: (array.max(), array.copy())) == 2
    assert count_rows.numpy_calls(lambda: sorted([3, 1])) == 0


def test_counting_restores_numpy():
    """NumPy's functions and the profiler are restored."""
    before = dict(vars(array_api_compat.numpy))
    count_rows.numpy_calls(lambda: None)
    assert dict(vars(array_api_compat.numpy)) == before
    assert array_api_compat.numpy.isfinite is np.isfinite
    assert sys.getprofile() is None


def test_operators_and_reads_of_torch_are_counted():
    """A foreach function counts as one operator; bool, float and item are reads."""
    torch = pytest.importorskip("torch")
    tensors = [torch.ones(5) for _ in range(7)]
    assert count_rows.torch_tally(lambda: torch._foreach_mul_(tensors, 2.0)) == (1, 0)
    assert count_rows.torch_tally(lambda: (tensors[0].sum(), tensors[0].neg())) == (2, 0)
    assert count_rows.torch_tally(lambda: (bool(tensors[0][0]), float(tensors[0].sum()), tensors[0].max().item()))[1] == 3


def test_programs_and_reads_of_jax_are_counted():
    """A jitted function is one program, as is each eager operation."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    arrays = [jnp.ones(5) for _ in range(3)]
    jitted = jax.jit(lambda arrays: [array * 2 for array in arrays])
    assert count_rows.jax_tally(lambda: jitted(arrays)) == (1, 0)
    assert count_rows.jax_tally(lambda: [jitted(arrays) for _ in range(4)]) == (4, 0)
    assert count_rows.jax_tally(lambda: [jnp.negative(array) for array in arrays]) == (3, 0)
    assert count_rows.jax_tally(lambda: float(jnp.negative(arrays[0])[0]))[1] >= 1
