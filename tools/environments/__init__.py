"""Environments of the published packages, and the classes that are cut out of their files."""
