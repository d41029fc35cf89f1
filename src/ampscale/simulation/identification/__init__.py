"""Identification of published scalers from the scales and overflows of a run."""
