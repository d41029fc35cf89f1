"""The cases of cases/machine.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_machine = chapter_test("machine")
