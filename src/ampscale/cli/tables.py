"""Tables of commands. Importing this module imports rich, or exits if it is not installed."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from .extras import exit_without

try:
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table
except ModuleNotFoundError as error:
    exit_without(error.name or "rich")

NARROWEST = 60  # columns; in a narrower console, rich would cut off texts and numbers

__all__ = ["Column", "Table", "number_columns", "table", "trimmed_console"]


def number_columns(*titles: str) -> list[Column]:
    """Return right-aligned columns with these titles, for numbers."""
    return [Column(title, justify="right", no_wrap=True) for title in titles]


def table(columns: Iterable[Column], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table with a horizontal line below its titles."""
    result = Table(*columns, box=box.SIMPLE_HEAD, padding=0)
    for cells in rows:
        result.add_row(*cells)
    return result


@contextmanager
def trimmed_console() -> Iterator[Console]:
    """Yield a console that prints texts as they are, and tables without the spaces and blank lines around them."""
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, NARROWEST)
    with console.capture() as printed:
        yield console
    lines = (line.rstrip() for line in printed.get().splitlines())
    click.echo("\n".join(lines).strip("\n"))
