"""Backend for torch tensors."""
