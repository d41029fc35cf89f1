"""Fuzzing of every parser of the library: `python -m fuzz --help`."""
