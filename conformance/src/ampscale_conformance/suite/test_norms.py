"""Tests of the cases in cases/norms.py."""

from ampscale_conformance.run.plugin import chapter_test

test_norms = chapter_test("norms")
