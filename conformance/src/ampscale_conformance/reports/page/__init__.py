"""The matrix as one page of HTML."""
