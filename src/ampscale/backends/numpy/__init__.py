"""Backend for NumPy arrays."""
