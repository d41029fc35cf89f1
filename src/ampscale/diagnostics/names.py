"""Names of gradients, as a `Monitor` receives them."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..parsing import excerpt


def check_names(names: Any) -> list[str] | dict[int, str] | None:
    """Return the names in order, or the names by the ids of the parameters; None if there are none."""
    if names is None:
        return None
    if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
        raise TypeError(f"names must be strings, or model.named_parameters(), got {excerpt(names)}")
    entries = list(names)
    if all(isinstance(entry, str) for entry in entries):
        return entries
    if all(isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries):
        return {id(parameter): name for name, parameter in entries}
    raise TypeError(f"names must be strings, or model.named_parameters(), got {excerpt(entries)}")


def names_of_gradients(names: dict[int, str], optimizer: Any) -> list[str]:
    """Return the names of the parameters of *optimizer* that have a gradient, given all names by the ids of the parameters."""
    groups = getattr(optimizer, "param_groups", None) or [{"params": getattr(optimizer, "parameters", [])}]
    parameters = [parameter for group in groups for parameter in group["params"]]
    return [names.get(id(parameter), "unnamed") for parameter in parameters if getattr(parameter, "grad", None) is not None]
