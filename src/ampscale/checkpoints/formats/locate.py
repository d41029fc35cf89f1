"""
Where in a training checkpoint the scaler is.

A path names a place by keys and by positions in lists, with dots between: "optimizer.loss_scaler.0". A key with dots in it, as
flat checkpoints have them, is a path as well: "scaler.scale" lies under "scaler".
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ...parsing import DEEPEST, LONGEST_PATH, check_length, cut, excerpt
from .ampscale import Own
from .format import Format

Found = tuple[str, Mapping[str, Any]]


def find(format: Format | Own, mapping: Mapping[str, Any], at: str | None) -> Found:
    """
    The mapping of a format in *mapping*, which may be *mapping* itself.

    Args:
        format: What to look for.
        mapping: A checkpoint.
        at: The path to it; empty for the top, None to look everywhere.

    Returns:
        The path, and what is there.

    Raises:
        TypeError: *mapping* is none.
        ValueError: There is nothing at the path, something else, or no mapping or several that fit.
    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"mapping must be a mapping, got {type(mapping).__name__}")
    if at is not None:
        check_length(at, LONGEST_PATH, "a path")
        inner = _at(mapping, at)
        if not isinstance(inner, Mapping):
            places = sorted(path for path, _ in _inside(mapping))
            raise ValueError(f"there must be a mapping at {excerpt(at)}; there are some at {_short(places)}")
        return at, _fitting(format, inner, f"at {excerpt(at)}" if at else "at the top")
    if _fits(format, mapping):
        return "", mapping
    found = [(path, inner) for path, inner in _inside(mapping) if _fits(format, inner)]
    if len(found) > 1:
        raise ValueError(f"several places hold a state of {format.name}; say which: {excerpt([path for path, _ in found], 400)}")
    return found[0] if found else ("", _fitting(format, mapping, "at the top, nor anywhere inside"))


def _fits(format: Format | Own, mapping: Mapping[str, Any]) -> bool:
    return all(key in mapping for key in format.needed) and not format.strange(list(mapping))


def _fitting(format: Format | Own, mapping: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """*mapping*, which has the keys of the format."""
    if not mapping:
        raise ValueError(f"a state of {format.name} must have the keys {list(format.needed)}, got none: the scaler was off")
    missing, strange = [key for key in format.needed if key not in mapping], format.strange(list(mapping))
    if missing or strange:
        texts = [f"{word} {_short(keys)}" for word, keys in (("missing", missing), ("unknown", strange)) if keys]
        raise ValueError(f"there is no state of {format.name} {where}: {', '.join(texts)}")
    return mapping


def _short(keys: list[str]) -> str:
    return excerpt(keys, 400) if len(keys) <= 8 else f"{excerpt(keys[:8], 400)} and {len(keys) - 8} more"


def _at(top: Any, path: str) -> Any:
    """Return what is at a path; None where nothing is."""
    waiting, seen = [(path, top)], set[tuple[int, int]]()  # rests of the path, and where they begin
    while waiting:
        rest, value = waiting.pop()
        if not rest:
            return value
        for key, inner in reversed(list(_members(value))):
            after = "" if rest == key else rest.removeprefix(f"{key}.")
            if after != rest and (len(after), id(inner)) not in seen:
                seen.add((len(after), id(inner)))
                waiting.append((after, inner))
    return None


def _inside(top: Mapping[str, Any]) -> Iterator[Found]:
    """Every mapping inside a checkpoint, once, with its path."""
    waiting: list[tuple[str, Any]] = [("", top)]
    seen = {id(top): top}  # which keeps them, so that no id is given away again
    while waiting:
        path, value = waiting.pop()
        if len(path) > LONGEST_PATH:
            raise ValueError(f"each path in a checkpoint must have at most {LONGEST_PATH} characters, got {cut(path)}")
        if path and isinstance(value, Mapping):
            yield path, value
        for key, inner in _members(value):
            if id(inner) not in seen:
                seen[id(inner)] = inner
                waiting.append((f"{path}.{key}" if path else key, inner))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """The mappings and lists that are one step further down; keys with a common beginning make a mapping."""
    if isinstance(value, Mapping):
        keyed = [(str(key), inner) for key, inner in value.items()]
        groups = dict[str, dict[str, Any]]()
        for key, inner in keyed:
            head, dot, rest = key.partition(".")
            if dot and rest.count(".") < DEEPEST:
                groups.setdefault(head, {})[rest] = inner
        keyed += groups.items()
    else:
        keyed = [(str(index), inner) for index, inner in enumerate(value)] if isinstance(value, list | tuple) else []
    yield from ((key, inner) for key, inner in keyed if isinstance(inner, Mapping | list | tuple))
