"""The detectors: what each sees, and what it remembers."""

import numpy as np
import pytest

from ampscale.frameworks.mindspore.detectors import GradientScan, StatusRegister

INF, NAN = np.inf, np.nan


@pytest.mark.clause("OVERFLOW-gradient-scan")
def test_a_gradient_scan_looks_at_the_end_alone(library):
    """It sees the output, whatever passed by before, and needs no token of its own."""
    scan = GradientScan()
    for token in (scan.start(None), None, np.zeros(8)):
        scan.observe(token, library.array([NAN]))
        assert library.to_numpy(scan.finite(token, library.array([1.0])))
        assert not library.to_numpy(scan.finite(token, library.array([INF])))


@pytest.mark.clause("OVERFLOW-status-register")
def test_a_status_register_remembers(library):
    """What was not finite since the start is an overflow, also where the output is finite again; a start clears it."""
    register, good = StatusRegister(), library.array([1.0])
    token = register.start(good)
    assert library.to_numpy(register.finite(token, good))
    register.observe(token, library.array([NAN]))
    register.observe(token, good)
    assert not library.to_numpy(register.finite(token, good))
    assert library.to_numpy(register.finite(register.start(good), good))
    assert not library.to_numpy(register.finite(register.start(good), library.array([INF])))


@pytest.mark.clause("OVERFLOW-status-register")
def test_a_status_register_takes_a_foreign_token(library):
    """A token of another make remembers nothing, so that the output alone decides."""
    register = StatusRegister()
    register.observe(None, library.array([NAN]))
    assert library.to_numpy(register.finite(None, library.array([1.0])))
    assert not library.to_numpy(register.finite(None, library.array([NAN])))
