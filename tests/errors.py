"""Tables of calls that raise: one test checks many, and its failure names each case that went wrong."""

import re


def unexpected(cases):
    """
    Return the cases that did not raise as expected, each with what happened instead.

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
