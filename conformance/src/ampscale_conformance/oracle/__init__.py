"""
Oracle: expected results, computed independently of the library in integers and fractions, with explicit rounding.

No module of this package imports the library or NumPy, so that the oracle does not share their errors.
"""
