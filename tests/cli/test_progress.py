"""Tests that the progress bar of a slow command is shown only on a terminal, and only after a delay."""

import io
import sys
import time

import pytest

from ampscale.cli import progress as module
from ampscale.cli.progress import progress


class Terminal(io.StringIO):
    """Text stream that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "delay", "is_shown"), [(Terminal, 0.0, True), (Terminal, 60.0, False), (io.StringIO, 0.0, False)]
)
def test_bar_is_shown_on_a_terminal_after_the_delay(monkeypatch, stream, delay, is_shown):
    """Without a terminal, or before the delay, nothing is written."""
    stderr = stream()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(module, "DELAY", delay)
    monkeypatch.setenv("TERM", "xterm")
    with progress("Reading [half]") as advance:
        advance(0.5)
        time.sleep(0.3)
    assert ("Reading [half]" in stderr.getvalue()) == is_shown
    assert is_shown or stderr.getvalue() == ""
