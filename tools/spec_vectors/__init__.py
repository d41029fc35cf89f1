"""Recomputes the expected values of spec/vectors with the oracle of the suite: `python -m spec_vectors`."""
