"""Entry point of ``python -m ampscale``, which runs the command ``ampscale``."""

from .cli import main

main()
