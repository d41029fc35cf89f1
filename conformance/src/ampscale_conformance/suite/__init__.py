"""The suite for pytest, a file a chapter: `pytest --pyargs ampscale_conformance.suite --ampscale-adapter pkg.mod:ADAPTER`."""
