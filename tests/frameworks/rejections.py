"""Checks that the documented classes reject invalid arguments."""

import re
from functools import partial

import pytest
from errors import unexpected


def rejects(error, name, actual):
    """Check that the block raises *error* with a message that names the argument, the expectation and the actual value."""
    return pytest.raises(error, match=_pattern(name, actual))


def check_rejected(call, cases, got=repr):
    """
    Check that ``call(name, value)`` raises the error of each case (name, value, error).

    The message must contain the name, and the result of *got* for the value; only the name if *got* is None.
    """
    calls = [
        (f"{name}={value!r}", partial(call, name, value), error, _pattern(name, "" if got is None else got(value)))
        for name, value, error in cases
    ]
    assert unexpected(calls) == []


def _pattern(name, actual):
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in (name, "must", actual))
