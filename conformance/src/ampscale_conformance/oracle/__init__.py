"""
What is right, computed a second time: whole numbers and fractions, and an explicit rounding at the end.

Nothing here imports `ampscale.core` or `ampscale.backends`, so that a mistake there is not repeated here.
"""
