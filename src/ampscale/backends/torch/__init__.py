"""torch tensors."""
