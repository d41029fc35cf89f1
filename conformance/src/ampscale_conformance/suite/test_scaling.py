"""Tests of the cases in cases/scaling.py."""

from ampscale_conformance.run.plugin import chapter_test

test_scaling = chapter_test("scaling")
