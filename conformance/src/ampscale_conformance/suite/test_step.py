"""Tests of the cases in cases/step.py."""

from ampscale_conformance.run.plugin import chapter_test

test_step = chapter_test("step")
