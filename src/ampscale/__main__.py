"""``python -m ampscale`` is ``ampscale``."""

from .cli import main

main()
