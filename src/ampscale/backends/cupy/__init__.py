"""CuPy arrays."""
