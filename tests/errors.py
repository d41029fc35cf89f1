"""Check of many calls that must raise an error: one failure lists all calls that raise none, or one with another message."""

import re


def unexpected(cases):
    """
    Return the cases that did not raise as expected, each with the message that does not match the pattern, or "no error".

    An error of another type is not caught.

    Args:
        cases: Tuples of a name or an argument that identifies the case, a call without arguments, the error that it must raise,
            and a pattern that the message must contain.
    """
    outcomes = [(case, _outcome(call, error, pattern)) for case, call, error, pattern in cases]
    assert outcomes, "a table without cases tests nothing"
    return [(case, outcome) for case, outcome in outcomes if outcome is not None]


def _outcome(call, error, pattern):
    try:
        call()
    except error as raised:
        return None if re.search(pattern, str(raised)) else f"{type(raised).__name__}: {raised}"
    return "no error"
