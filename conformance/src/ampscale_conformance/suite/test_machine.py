"""Tests of the cases in cases/machine.py."""

from ampscale_conformance.run.plugin import chapter_test

test_machine = chapter_test("machine")
