"""Test runner, expected failures, random test generation, and the pytest plug-in."""
