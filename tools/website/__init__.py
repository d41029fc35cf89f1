"""Sources of the documentation site: the Markdown pages of the repository, and generated pages. See `make docs`."""
