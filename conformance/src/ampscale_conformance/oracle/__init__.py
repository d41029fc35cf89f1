"""
Oracle: expected results, computed independently of the library in integers and fractions, with explicit rounding.

Nothing here imports `ampscale.core` or `ampscale.backends`, so that an error there is not repeated here.
"""
