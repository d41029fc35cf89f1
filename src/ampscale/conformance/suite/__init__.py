"""The suite for pytest, a file a chapter: `pytest --pyargs ampscale.conformance.suite --ampscale-adapter pkg.mod:ADAPTER`."""
