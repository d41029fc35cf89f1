"""Release tools: check of a release, table of supported versions, history of the matrix, coverage, and interruptions."""
