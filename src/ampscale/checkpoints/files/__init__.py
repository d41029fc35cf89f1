"""Readers and writers of checkpoint files, which run no code from a file."""
