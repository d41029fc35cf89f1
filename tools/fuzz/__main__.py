"""Command `python -m fuzz`; see run.py."""

from .run import main

if __name__ == "__main__":
    main()
