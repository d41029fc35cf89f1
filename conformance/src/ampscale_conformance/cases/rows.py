"""Tables of cases as text, which show the scripts one below the other."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple


class Row(NamedTuple):
    """Row of a table: the name "CLAUSE/id" of a case, its script, its options, required capabilities, and the bug it detects."""

    name: str
    script: str
    options: dict[str, Any]
    needs: tuple[str, ...]
    catches: str


def rows(text: str) -> Iterator[Row]:
    """
    Yield the rows of a table.

    A row is "NAME | SCRIPT | OPTIONS"; it continues in indented lines, of which the last one is the bug. Options are written
    `name=value`; a value is a number such as `3` or `2**-20`, or a text. `times` repeats the script, and `needs` lists
    capabilities.
    """
    for block in re.split(r"\n(?=\S)", text.strip()):
        first, *more = map(str.strip, block.splitlines())
        catches = more.pop() if more else ""
        name, _, rest = re.sub(r" *\| *", "|", " ".join([first, *more])).partition("|")
        script, _, settings = rest.partition("|")
        options = {key: _value(value) for key, value in (item.split("=") for item in settings.split())}
        needs = tuple(filter(None, options.pop("needs", "").split(",")))
        yield Row(name, script * options.pop("times", 1), options, needs, catches)


def _value(text: str) -> Any:
    """Return an int, a float such as 0.5 or 2**-20, or *text* itself if it is not a number."""
    if text.isdecimal():
        return int(text)
    base, _, exponent = text.partition("**")
    try:
        return float(base) ** int(exponent or 1)
    except ValueError:
        return text
