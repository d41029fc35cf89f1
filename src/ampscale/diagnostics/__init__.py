"""Diagnosis of loss scaling: statistics of gradients, verdicts on skipped steps, and suggestions for the scale."""
