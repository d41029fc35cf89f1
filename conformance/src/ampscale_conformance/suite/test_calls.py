"""Tests of the cases in cases/calls.py."""

from ampscale_conformance.run.plugin import chapter_test

test_calls = chapter_test("calls")
