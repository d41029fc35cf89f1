"""Implementations in another process or another language."""
