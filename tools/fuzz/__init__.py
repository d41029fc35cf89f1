"""Fuzzing of all parsers of the library: `python -m fuzz --help`."""
