"""Checkpoint formats of ampscale and of the published scalers."""
