"""The cases of cases/calls.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_calls = chapter_test("calls")
