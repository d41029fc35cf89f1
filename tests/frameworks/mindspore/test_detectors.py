"""Overflow detectors: which values each one checks and records."""

import numpy as np
import pytest

from ampscale.frameworks.mindspore.detectors import GradientScan, StatusRegister

INF, NAN = np.inf, np.nan


@pytest.mark.clause("OVERFLOW-gradient-scan")
def test_gradient_scan_checks_only_the_output(library):
    """Earlier values are ignored, and any object may be the status."""
    scan = GradientScan()
    for status in (scan.start(None), None, np.zeros(8)):
        scan.observe(status, library.array([NAN]))
        assert library.to_numpy(scan.finite(status, library.array([1.0])))
        assert not library.to_numpy(scan.finite(status, library.array([INF])))


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


@pytest.mark.clause("OVERFLOW-status-register")
def test_status_register_accepts_a_foreign_status_object(library):
    """A foreign object records nothing, so only the output counts."""
    register = StatusRegister()
    register.observe(None, library.array([NAN]))
    assert library.to_numpy(register.finite(None, library.array([1.0])))
    assert not library.to_numpy(register.finite(None, library.array([NAN])))
