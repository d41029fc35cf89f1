"""Tests of the cases in cases/overflow.py."""

from ampscale_conformance.run.plugin import chapter_test

test_overflow = chapter_test("overflow")
