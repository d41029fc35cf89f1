"""Check that the packages are installed that a command needs besides NumPy."""

import sys
from importlib import import_module
from typing import NoReturn


def require(*modules: str, extra: str = "cli") -> None:
    """Exit with 2 and one line that says what to install, if one of *modules* is missing."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            exit_without(error.name or module, extra)


def exit_without(module: str, extra: str) -> NoReturn:
    """Exit with 2 and one line that says that *extra* installs *module*."""
    sys.stderr.write(f'ampscale: {module} is not installed: pip install "ampscale[{extra}]"\n')
    raise SystemExit(2)
