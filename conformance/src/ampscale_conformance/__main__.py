"""`python -m ampscale_conformance`: the same command as `ampscale conform`."""

from .cli import conform

if __name__ == "__main__":
    conform(prog_name="python -m ampscale_conformance")
