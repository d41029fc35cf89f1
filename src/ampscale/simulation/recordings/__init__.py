"""Recorded runs: CSV files and training logs, read step by step."""
