"""Checks that the documented classes reject invalid arguments."""

from contextlib import contextmanager

import pytest


@contextmanager
def rejects(error, name, actual):
    """Check that the block raises *error* with a message that names the argument, the expectation and the actual value."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert name in message, message
    assert "must" in message, message
    assert actual in message, message


def check_rejected(call, cases, got=repr):
    """
    Check that ``call(name, value)`` raises the error of each case (name, value, error).

    The message must contain the name, and the result of *got* for the value.
    """
    failures = []
    for name, value, error in cases:
        try:
            with rejects(error, name, got(value)):
                call(name, value)
        except (AssertionError, pytest.fail.Exception) as failure:
            failures.append(f"{name}={value!r}: {failure}")
    assert not failures, "\n".join(failures)
