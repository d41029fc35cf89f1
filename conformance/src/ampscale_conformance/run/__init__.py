"""Runs of the suite: verdicts, expected failures, random cases, and the pytest plug-in."""
