"""Checkpoint files, read and written without running code."""
