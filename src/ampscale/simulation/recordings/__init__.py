"""Readers of recorded runs: CSV files and training logs."""
