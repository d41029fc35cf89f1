"""Fuzzing of all parsers of the library and of the conformance suite: `python -m fuzz --help`."""
