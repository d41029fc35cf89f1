"""The cases of cases/backends.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_backends = chapter_test("backends")
