"""Rows of the benchmark. Each module provides its rows as specifications."""
