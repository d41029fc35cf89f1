"""
Trees: tuples, lists, dicts and NamedTuples of arrays, and the containers of a library that `open_with` tells of.

None stands where there is no array, for instance for a parameter without a gradient, and is passed over.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import array_api_compat

from .typing import Array, Flag, Tree

Opened = tuple[list[Tree], Callable[[list[Tree]], Tree]]  # what a container holds, and what puts other things in their place

_openers: list[Callable[[Any], Opened | None]] = []


def open_with(opener: Callable[[Any], Opened | None]) -> None:
    """From now on trees may hold what *opener* opens: an array library's own kinds of containers. None is for no container."""
    _openers.append(opener)


def leaves(tree: Tree) -> list[Array]:
    """The arrays of *tree*, in order; dicts in the order of their keys' insertion."""
    return [leaf for _, leaf in leaves_with_paths(tree)]


def leaves_with_paths(tree: Tree, name: str = "tree") -> list[tuple[str, Array]]:
    """
    The arrays of *tree*, which is called *name*, with the path to each, as one would write it: ``tree['w'][0]``.

    Raises:
        TypeError: Something in the tree is neither a container, nor an array, nor None.
    """
    return list(_walk(tree, name))


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """
    *tree* with each array replaced by ``function(array, *same place in others)``.

    Where another tree holds None, or ends early in None, the function is given None.

    Raises:
        TypeError: Something in the tree is neither a container, nor an array, nor None.
        ValueError: Another tree has other keys or another length.
    """
    if tree is None:
        return None
    children = _children(tree)
    if children is None:
        _check_leaf("tree", tree)
        for other in others:
            if _children(other) is not None:
                raise ValueError(f"trees must have the same structure: wanted an array, got {_outline(other)}")
        return function(tree, *others)
    keys = [key for key, _ in children]
    columns = [_matching(keys, other) for other in others]
    return _rebuild(tree, [map_leaves(function, child, *rest) for (_, child), *rest in zip(children, *columns, strict=True)])


def rows(tree: Tree, *others: Tree) -> list[tuple[Any, ...]]:
    """For each array of *tree*, it and what stands in its place in the other trees; None where nothing does."""
    found: list[tuple[Any, ...]] = []
    map_leaves(lambda *row: found.append(row), tree, *others)
    return found


def rebuilt(tree: Tree, values: Iterable[Any]) -> Tree:
    """*tree* with its arrays replaced by *values*, in order."""
    remaining = iter(values)
    return map_leaves(lambda _: next(remaining), tree)


def select(flag: Flag, new: Tree, old: Tree) -> Tree:
    """
    *new* where *flag* is True, else *old*, without looking at the flag.

    Args:
        flag: Bool, shape ().
        new: Arrays; None where *old* stays in either case.
        old: Arrays of the same shapes and dtypes; gives the structure of the result.
    """
    return map_leaves(lambda before, after: before if after is None else _where(flag, after, before), old, new)


def _where(flag: Flag, after: Array, before: Array) -> Array:
    return array_api_compat.array_namespace(before).where(flag, after, before)


def _walk(tree: Tree, path: str) -> Iterator[tuple[str, Array]]:
    if tree is None:
        return
    children = _children(tree)
    if children is None:
        _check_leaf(path, tree)
        yield path, tree
        return
    for key, child in children:
        yield from _walk(child, f"{path}[{key!r}]")


def _check_leaf(path: str, leaf: Any) -> None:
    if not array_api_compat.is_array_api_obj(leaf):
        raise TypeError(f"{path} must be an array, or a tuple, list or dict of arrays, or None, got {type(leaf).__name__}")


def _children(tree: Tree) -> list[tuple[Any, Tree]] | None:
    if isinstance(tree, tuple | list):
        return list(enumerate(tree))
    if type(tree) in (dict, OrderedDict):
        return list(tree.items())
    opened = _opened(tree)
    return None if opened is None else list(enumerate(opened[0]))


def _opened(tree: Tree) -> Opened | None:
    if not _openers or tree is None or array_api_compat.is_array_api_obj(tree):
        return None
    return next(filter(None, (opener(tree) for opener in _openers)), None)


def _matching(keys: list[Any], other: Tree) -> list[Tree]:
    if other is None:
        return [None] * len(keys)
    children = _children(other)
    if children is None or sorted(map(repr, keys)) != sorted(repr(key) for key, _ in children):
        raise ValueError(f"trees must have the same structure: wanted {keys}, got {_outline(other)}")
    by_key = dict(children)
    return [by_key[key] for key in keys]


def _outline(tree: Tree) -> Any:
    children = _children(tree)
    return type(tree).__name__ if children is None else [key for key, _ in children]


def _rebuild(tree: Tree, children: list[Tree]) -> Tree:
    if type(tree) in (dict, OrderedDict):
        return type(tree)(zip(tree, children, strict=True))
    if hasattr(tree, "_fields"):
        return type(tree)(*children)
    if isinstance(tree, tuple | list):
        return type(tree)(children)
    opened = _opened(tree)
    return None if opened is None else opened[1](children)
