"""Virtual environments with the published packages, and classes extracted from their source files."""
