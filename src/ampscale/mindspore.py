"""MindSpore's documented classes. This module is short for `ampscale.frameworks.mindspore`."""

from .frameworks.mindspore import *  # noqa: F403 - the same names, under a shorter path
from .frameworks.mindspore import __all__ as __all__
