"""What every refusal at the border has in common."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(error, name, came):
    """The block raises *error*, whose message names the argument and says what was wanted and what came."""
    with pytest.raises(error) as refusal:
        yield
    words = str(refusal.value)
    assert name in words
    assert "must" in words
    assert came in words
