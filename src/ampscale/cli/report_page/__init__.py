"""Page of a run in one HTML file: the scale with skipped steps, exponent histograms, and diagnoses."""
