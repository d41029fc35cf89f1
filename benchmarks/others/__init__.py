"""Other implementations of the measured operations: each library's own functions, and NumPy code as users write it."""
