"""Release tools: the check of a release, the table of supported versions, and the changes between two matrices."""
