"""The cases of cases/replicas.py, a test each."""

from ampscale_conformance.run.plugin import chapter_test

test_replicas = chapter_test("replicas")
