"""MindFormers' documented classes. This module is short for `ampscale.frameworks.mindformers`."""

from .frameworks.mindformers import *  # noqa: F403 - the same names, under a shorter path
from .frameworks.mindformers import __all__ as __all__
