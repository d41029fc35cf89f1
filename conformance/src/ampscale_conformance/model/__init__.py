"""Types in which cases are written and results are reported."""
