"""
Loss-scale state machine and array functions, written as pure functions on the Array API.

Of the other parts of ampscale, this package imports only `parsing`.
"""
