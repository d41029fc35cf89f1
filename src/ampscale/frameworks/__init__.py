"""
Classes that the frameworks document, in one module per framework.

The classes validate arguments, call the public functions, and store the state.
"""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import the module `torch` of this package when it is first used, since it requires the package torch."""
    if name != "torch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(".torch", __name__)
    except ModuleNotFoundError as error:  # hasattr() expects an AttributeError
        raise AttributeError(str(error)) from error
