"""Write docs/calls.md: the result of each call of the documented classes in each state. `make api` runs it."""

from collections.abc import Iterator
from pathlib import Path

from ampscale.frameworks._calls import TABLES, CallTable, Error

PAGE = Path(__file__).parent.parent / "docs" / "calls.md"
HEAD = """# Calls

For each class whose calls must follow an order, a table shows the result of every call in every state. The
[specification](../spec/55-calls.md) has the reasons.

Each row is a state. For a `GradScaler`, it is the state of one optimizer since the last `update()` or, with a fixed scale, since
the last step of this optimizer. Each column is a call: → leads to a state, an empty cell leaves the state as it is, and "error 3"
is a RuntimeError with the third message below the table. A rejected call changes nothing. In the messages, `{at}` stands for the
line of the earlier call, such as " at train.py:31".

If several optimizers share a scaler, `update()` is permitted as soon as one of them was unscaled or stepped, while `copy`, which
stands for copying or pickling, requires that none of them was. `state_dict()` has the errors of `get_scale()`. A disabled
scaler accepts all calls in any order.

MindSpore's scalers, managers and update cells prescribe no order: any of their calls is permitted at any time. So is each call of
a communicator, but all ranks must make the same calls in the same order.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *(line for table in TABLES for line in _table_lines(table))])


def _table_lines(table: CallTable) -> Iterator[str]:
    numbers: dict[str, int] = {}
    for results in table.results.values():
        for result in results.values():
            if isinstance(result, Error):
                numbers.setdefault(result, len(numbers) + 1)
    yield from (f"## {table.name}", "", "| state | " + " | ".join(f"`{call}`" for call in table.calls) + " |")
    yield "|---" * (len(table.calls) + 1) + "|"
    for state, results in table.results.items():
        yield f"| **{state}** | " + " | ".join(_cell(state, result, numbers) for result in results.values()) + " |"
    yield from ("", *(f"- **{state}**: {text}" for state, text in table.states.items()), "")
    yield from (*(f"{number}. {message}".replace("{call}", "…") for message, number in numbers.items()), "")


def _cell(state: str, result: str, numbers: dict[str, int]) -> str:
    if isinstance(result, Error):
        return f"error {numbers[result]}"
    return "" if result == state else f"→ {result}"


if __name__ == "__main__":
    main()
