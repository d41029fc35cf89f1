"""Recomputation of the expected values in spec/vectors with the oracle of the conformance suite: `python -m spec_vectors`."""
