"""Checkpoint formats of the published scalers."""
