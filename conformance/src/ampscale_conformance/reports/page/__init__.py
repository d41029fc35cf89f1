"""HTML page of the conformance matrix."""
