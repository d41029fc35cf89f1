"""Checks of rejected arguments that the documented classes have in common."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(error, name, came):
    """The block raises *error*, whose message names the argument and says what was wanted and what came."""
    with pytest.raises(error) as refusal:
        yield
    words = str(refusal.value)
    assert name in words, words
    assert "must" in words, words
    assert came in words, words


def check_rejected(call, cases, got=repr):
    """Check that ``call(name, value)`` raises the error of each case (name, value, error), and names argument and value."""
    failures = []
    for name, value, error in cases:
        try:
            with refused(error, name, got(value)):
                call(name, value)
        except (AssertionError, pytest.fail.Exception) as failure:
            failures.append(f"{name}={value!r}: {failure}")
    assert not failures, "\n".join(failures)
