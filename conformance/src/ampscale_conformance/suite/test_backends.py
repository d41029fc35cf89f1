"""Tests of the cases in cases/backends.py."""

from ampscale_conformance.run.plugin import chapter_test

test_backends = chapter_test("backends")
