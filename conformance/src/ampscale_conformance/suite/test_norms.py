"""The cases of cases/norms.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_norms = chapter_test("norms")
