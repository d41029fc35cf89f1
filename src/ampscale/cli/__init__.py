"""The commands: here, and only here, something is printed, drawn or parsed."""

import sys
from errno import EPIPE


def main() -> None:
    """The command line. An error of the system, such as a full disk behind stdout or a picture, ends it in one line."""
    if sys.stdout is None:
        sys.exit("ampscale: stdout must be open")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # or Python would write what is left when it ends, and fail again
        sys.exit(1 if error.errno == EPIPE else f"ampscale: {error}")


def _run() -> None:
    """`doctor` comes before click is looked for, since it must work where nothing else is installed."""
    if sys.argv[1:2] == ["doctor"]:
        from .doctor import main as doctor

        sys.exit(doctor(sys.argv[2:]))
    from .app import main as app

    app()
