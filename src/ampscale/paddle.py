"""Paddle's documented classes. This module is short for `ampscale.frameworks.paddle`."""

from .frameworks.paddle import *  # noqa: F403 - the same names, under a shorter path
from .frameworks.paddle import __all__ as __all__
