"""Overflow detectors: which values each one checks and records."""

import array_api_strict
import numpy as np
import pytest

from ampscale.frameworks.mindspore.detectors import StatusRegister

INF, NAN = np.inf, np.nan


@pytest.mark.clause("OVERFLOW-status-register")
def test_status_register_is_sticky_until_the_next_start(library):
    """A non-finite value since the start is an overflow even if the output is finite."""
    register, good = StatusRegister(), library.array([1.0])
    status = register.start(good)
    assert library.to_numpy(register.finite(status, good))
    register.observe(status, library.array([NAN]))
    register.observe(status, good)
    assert not library.to_numpy(register.finite(status, good))
    assert library.to_numpy(register.finite(register.start(good), good))
    assert not library.to_numpy(register.finite(register.start(good), library.array([INF])))


def test_status_register_rejects_arrays_of_another_library():
    """Neither a check nor an observation changes the flag."""
    register, other = StatusRegister(), array_api_strict.asarray([INF])
    status = register.start(np.float32([1.0]))
    for call in (register.observe, register.finite):
        with pytest.raises(TypeError, match="arrays must come from one library and one device"):
            call(status, other)
    assert register.finite(status, np.float32([1.0]))
