"""torch's documented classes. This module is short for `ampscale.frameworks.torch`."""

from .frameworks.torch import *  # noqa: F403 - the same names, under a shorter path
from .frameworks.torch import __all__ as __all__
