"""Compiled kernels for arrays in main memory, which the NumPy and torch backends share."""
