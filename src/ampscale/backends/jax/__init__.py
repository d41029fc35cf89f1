"""Backend for JAX arrays."""
