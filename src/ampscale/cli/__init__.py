"""Command line. No other package of ampscale prints, draws pictures or parses arguments."""

import sys
from errno import EPIPE
from io import TextIOWrapper


def main() -> None:
    """Run the command line. Ctrl-C and an operating-system error, such as a full disk, end it with one line and exit code 1."""
    if sys.stdout is None:
        sys.exit("ampscale: stdout must be open")
    if isinstance(sys.stdout, TextIOWrapper):  # a file or a pipe on Windows cannot encode all characters
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # click handles Ctrl-C, but not during imports and in `doctor`
        sys.exit("Aborted!")
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
