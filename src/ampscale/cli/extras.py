"""Checks that the packages that a command requires besides NumPy are installed."""

import sys
from importlib import import_module
from typing import NoReturn


def require(*modules: str, extra: str = "cli") -> None:
    """If one of *modules* is missing, exit with code 2 and one line on stderr that states what to install."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            exit_without(error.name or module, f'"ampscale[{extra}]"')


def exit_without(module: str, requirement: str = '"ampscale[cli]"') -> NoReturn:
    """Exit with code 2 and one line on stderr that states that *requirement* installs *module*."""
    sys.stderr.write(f"ampscale: {module} is not installed: pip install {requirement}\n")
    raise SystemExit(2)
