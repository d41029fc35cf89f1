"""The cases of cases/step.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_step = chapter_test("step")
