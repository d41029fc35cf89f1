"""
Oracle: expected results, computed independently of the library in integers and fractions, with explicit rounding.

No module of this package imports `ampscale.core` or `ampscale.backends`, so that the oracle does not repeat their errors.
"""
