"""What a command needs beside the package itself."""

from importlib import import_module

MISSING = 'ampscale: {} is not installed: pip install "ampscale[{}]"'


def need(*modules: str, extra: str = "cli") -> None:
    """Ends the command with one line where a package is missing."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise SystemExit(MISSING.format(error.name or module, extra)) from None
