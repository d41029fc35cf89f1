"""The cases of cases/overflow.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_overflow = chapter_test("overflow")
