"""``python -m ampscale`` is ``ampscale``."""

from .cli.app import main

main()
