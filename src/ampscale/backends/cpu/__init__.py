"""Compiled kernels that the NumPy and torch backends share, for arrays in main memory."""
