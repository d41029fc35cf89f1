"""The cases of cases/scaling.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_scaling = chapter_test("scaling")
