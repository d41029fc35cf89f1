"""Tests of the cases in cases/replicas.py."""

from ampscale_conformance.run.plugin import chapter_test

test_replicas = chapter_test("replicas")
