"""Readers and writers of checkpoint files. Reading a file never runs code from it."""
