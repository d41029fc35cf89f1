"""The commands: here, and only here, something is printed, drawn or parsed."""

import sys


def main() -> None:
    """The command line. `doctor` comes before click is looked for, since it must work where nothing else is installed."""
    if sys.argv[1:2] == ["doctor"]:
        from .doctor import main as doctor

        sys.exit(doctor(sys.argv[2:]))
    from .app import main as app

    app()
