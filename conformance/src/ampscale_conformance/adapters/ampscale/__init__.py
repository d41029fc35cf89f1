"""Adapters of ampscale itself."""
