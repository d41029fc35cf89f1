"""
Search for a scaler in a training checkpoint.

A path consists of keys and list indices, joined by dots: "optimizer.loss_scaler.0". A key that contains dots, as in flat
checkpoints, is also read as a path: "scaler.scale" is "scale" in "scaler".
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ...core.validation import check_type
from ...parsing import DEEPEST, LONGEST_PATH, check_length, cut, excerpt
from .ampscale import AmpscaleFormat
from .format import Format

Match = tuple[str, Mapping[str, Any]]


def find(format: Format | AmpscaleFormat, mapping: Mapping[str, Any], at: str | None) -> Match:
    """Return the path and the entries of the scaler at path *at* in *mapping*; if *at* is None, search for the only scaler."""
    if not isinstance(mapping, Mapping):
        raise TypeError(f"mapping must be a mapping, got {type(mapping).__name__}")
    if at is None:
        return _search(format, mapping)
    check_type(at, "at", str)
    check_length(at, LONGEST_PATH, "a path")
    entries = _value_at(mapping, at)
    if not isinstance(entries, Mapping):
        paths = sorted(path for path, _ in _inner_mappings(mapping))
        raise ValueError(f"at must be the path of a mapping, got {excerpt(at)}; there are mappings at {_shortened(paths)}")
    return at, _checked(format, entries, f"at {excerpt(at)}" if at else "at the top level")


def find_states(formats: Iterable[Format | AmpscaleFormat], mapping: Any, at: str | None) -> list[tuple[str, str]]:
    """
    Return the name of the format and the path of each scaler state in *mapping*, sorted by path.

    As in `find`, *at* restricts the search to one path, and a format that fits the top level is not searched below the top level.
    """
    if at is None:
        locations = [("", mapping), *_inner_mappings(mapping)]
    else:
        check_length(at, LONGEST_PATH, "a path")
        locations = [(at, _value_at(mapping, at))]
    mappings = [(path, inner) for path, inner in locations if isinstance(inner, Mapping)]
    states = [(path, format.name) for format in formats for path, inner in mappings if _fits(format, inner)]
    at_top = {name for path, name in states if not path}
    return [(name, path) for path, name in sorted(states) if not path or name not in at_top]


def _search(format: Format | AmpscaleFormat, mapping: Mapping[str, Any]) -> Match:
    """Return the path and the entries of the only scaler in *mapping*; one at the top level takes precedence."""
    if _fits(format, mapping):
        return "", mapping
    mappings = [("", mapping), *_inner_mappings(mapping)]
    matches = [(path, inner) for path, inner in mappings if _fits(format, inner)]
    if len(matches) > 1:
        listed = excerpt([path for path, _ in matches], 400)
        raise ValueError(f"the checkpoint has several states of {format.name}; at must be the path of one: {listed}")
    if matches:
        return matches[0]
    path, nearest = max(mappings, key=lambda match: len(set(format.required) & set(match[1])))
    location = f"in the checkpoint; the nearest mapping is at {excerpt(path)}" if path else "at the top level or below it"
    return path, _checked(format, nearest, location)


def _fits(format: Format | AmpscaleFormat, mapping: Mapping[str, Any]) -> bool:
    return all(key in mapping for key in format.required) and not _unknown(format, mapping)


def _unknown(format: Format | AmpscaleFormat, mapping: Mapping[str, Any]) -> list[str]:
    """Return the keys that neither belong to *format* nor are permitted beside its keys."""
    known = {*format.required, *format.settings}
    return [key for key in mapping if key not in known and not any(fnmatchcase(str(key), pattern) for pattern in format.beside)]


def _checked(format: Format | AmpscaleFormat, mapping: Mapping[str, Any], location: str) -> Mapping[str, Any]:
    """Return *mapping* if it has the keys of *format*; otherwise raise an error that names *location*."""
    if not mapping:
        expected = f"a state of {format.name} must have the keys {list(format.required)}"
        raise ValueError(f"{expected}, got an empty mapping, which is what a disabled scaler saves")
    missing = [key for key in format.required if key not in mapping]
    unknown = _unknown(format, mapping)
    if missing or unknown:
        faults = [f"missing {_shortened(missing)}"] if missing else []
        faults += [f"unknown {_shortened(unknown)}"] if unknown else []
        raise ValueError(f"there is no state of {format.name} {location}: {', '.join(faults)}")
    return mapping


def _shortened(keys: list[str]) -> str:
    return excerpt(keys, 400) if len(keys) <= 8 else f"{excerpt(keys[:8], 400)} and {len(keys) - 8} more"


def _value_at(top: Any, path: str) -> Any:
    """Return the value at *path*; None if there is no such path."""
    # Keys may contain dots, so a path can be split in several ways. Try all, but visit each value only once per remaining path.
    stack, visited = [(path, top)], dict[tuple[int, int], Any]()  # holds references, so that no id is reused
    while stack:
        suffix, value = stack.pop()
        if not suffix:
            return value
        for key, inner in reversed(list(_members(value))):
            after = "" if suffix == key else suffix.removeprefix(f"{key}.")
            if after != suffix and (len(after), id(inner)) not in visited:
                visited[len(after), id(inner)] = inner
                stack.append((after, inner))
    return None


def _inner_mappings(top: Mapping[str, Any]) -> Iterator[Match]:
    """Yield a path to each mapping inside a checkpoint, and the mapping. If several paths lead to it, only one is yielded."""
    stack: list[tuple[str, Any]] = [("", top)]
    visited = {id(top): top}  # holds references, so that no id is reused
    while stack:
        path, value = stack.pop()
        if len(path) > LONGEST_PATH:
            raise ValueError(f"each path in a checkpoint must have at most {LONGEST_PATH} characters, got {cut(path)}")
        if path and isinstance(value, Mapping):
            yield path, value
        for key, inner in _members(value):
            if id(inner) not in visited:
                visited[id(inner)] = inner
                stack.append((f"{path}.{key}" if path else key, inner))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """
    Yield the key or index, and the value, of each mapping or list in *value*.

    Keys that contain dots are also grouped: "a.b" and "a.c" are yielded as one mapping "a" with the keys "b" and "c".
    """
    members: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        members = [(str(key), inner) for key, inner in value.items()]
        groups = dict[str, dict[str, Any]]()
        for key, inner in members:
            head, dot, tail = key.partition(".")
            if dot and tail.count(".") < DEEPEST:
                groups.setdefault(head, {})[tail] = inner
        members += groups.items()
    elif isinstance(value, list | tuple):
        members = [(str(index), inner) for index, inner in enumerate(value)]
    for key, inner in members:
        if isinstance(inner, Mapping | list | tuple):
            yield key, inner
