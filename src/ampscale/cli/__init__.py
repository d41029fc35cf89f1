"""Command line. No other package of ampscale prints, draws pictures or parses arguments."""

import sys
from errno import EPIPE


def main() -> None:
    """Run the command line. An operating-system error, such as a full disk, ends it with one line and exit code 1."""
    if sys.stdout is None:
        sys.exit("ampscale: stdout must be open")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # Python would flush it at exit, and fail again
        sys.exit(1 if error.errno == EPIPE else f"ampscale: {error}")


def _run() -> None:
    # `doctor` must work without click, which the other commands import.
    if sys.argv[1:2] == ["doctor"]:
        from .doctor import main as doctor

        sys.exit(doctor(sys.argv[2:]))
    from .app import main as app

    app()
