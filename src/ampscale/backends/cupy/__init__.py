"""Backend for CuPy arrays."""
