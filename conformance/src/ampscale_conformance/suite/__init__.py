"""Suite for pytest, one file per chapter: `pytest --pyargs ampscale_conformance.suite --ampscale-adapter pkg.mod:ADAPTER`."""
