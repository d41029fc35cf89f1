"""
Loss-scale state machine and array functions, written as pure functions on the Array API.

This package imports no other part of ampscale except `parsing`.
"""
