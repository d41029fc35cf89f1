"""
Trees: tuples, lists, dicts and NamedTuples of arrays, and the containers of a library that `register_container` tells of.

None stands where there is no array, for instance for a parameter without a gradient, and is passed over.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import array_api_compat

from .type_names import type_name
from .typing import Array, Flag, Tree

Opened = tuple[list[Tree], Callable[[list[Tree]], Tree]]  # what a container holds, and what puts other things in their place

MOST_LEVELS = 300  # of containers within each other; functions that call themselves twice a level can go as deep

_openers: list[Callable[[Any], Opened | None]] = []


def register_container(opener: Callable[[Any], Opened | None]) -> None:
    """From now on trees may hold what *opener* opens: an array library's own kinds of containers. None is for no container."""
    _openers.append(opener)


def leaves(tree: Tree, name: str = "tree") -> list[Array]:
    """
    The arrays of *tree*, in order; dicts in the order of their keys' insertion. An error calls it *name*.

    Raises:
        TypeError: Something in the tree is neither a container, nor an array, nor None.
        ValueError: The tree contains itself, or is nested too deep.
    """
    try:
        found = _gathered(tree)
    except RecursionError:
        raise ValueError(_too_deep(tree, name)) from None
    if found is None:
        return [leaf for _, leaf in leaves_with_paths(tree, name)]  # which says what is no array, and where
    return found


def leaves_with_paths(tree: Tree, name: str = "tree") -> list[tuple[str, Array]]:
    """
    The arrays of *tree*, which is called *name*, with the path to each, as one would write it: ``tree['w'][0]``.

    Raises:
        TypeError: Something in the tree is neither a container, nor an array, nor None.
        ValueError: The tree contains itself, or is nested too deep.
    """
    try:
        return list(_walk(tree, name))
    except RecursionError:
        raise ValueError(_too_deep(tree, name)) from None


def one_of_each_type(values: Sequence[Any]) -> list[Any]:
    """Some of *values*, one of each type: there may be ten thousand arrays, and what their type tells need be asked once."""
    if len(set(map(type, values))) == 1:
        return [values[0]]
    return list(dict(zip(map(type, values), values, strict=True)).values())


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
    members = [child for _, child in children]
    # The same as below, five times quicker: most trees are one list or dict of many arrays.
    if _are_arrays(members) and all(_are_arrays([other for other in column if other is not None]) for column in columns):
        return _rebuild(tree, list(map(function, members, *columns)))
    return _rebuild(tree, [map_leaves(function, child, *rest) for (_, child), *rest in zip(children, *columns, strict=True)])


def zip_leaves(tree: Tree, *others: Tree) -> list[tuple[Any, ...]]:
    """For each array of *tree*, it and what stands in its place in the other trees; None where nothing does."""
    found: list[tuple[Any, ...]] = []
    map_leaves(lambda *row: found.append(row), tree, *others)
    return found


def unflatten(tree: Tree, values: Iterable[Any]) -> Tree:
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


def _gathered(tree: Tree, levels: int = MOST_LEVELS) -> list[Array] | None:
    """The arrays of *tree*; None where something is neither a container, nor an array, nor None."""
    if tree is None:
        return []
    children = _members(tree)
    if children is None:
        return [tree] if array_api_compat.is_array_api_obj(tree) else None
    if not levels:
        raise RecursionError
    if _are_arrays(children):
        return children
    found: list[Array] = []
    for child in children:
        arrays = _gathered(child, levels - 1)
        if arrays is None:
            return None
        found += arrays
    return found


def _are_arrays(values: Sequence[Any]) -> bool:
    """Whether all are arrays: asked of one of each type, since there may be ten thousand of one."""
    return all(map(array_api_compat.is_array_api_obj, one_of_each_type(values)))


def _walk(tree: Tree, path: str, levels: int = MOST_LEVELS) -> Iterator[tuple[str, Array]]:
    if tree is None:
        return
    children = _children(tree)
    if children is None:
        _check_leaf(path, tree)
        yield path, tree
        return
    if not levels:
        raise RecursionError
    for key, child in children:
        yield from _walk(child, f"{path}[{key!r}]", levels - 1)


def _too_deep(tree: Tree, name: str) -> str:
    """Return the message for a tree in which a walk does not end: the path at which it contains itself, if it does."""
    above, waiting = dict[int, str](), [(name, tree, False)]
    while waiting and len(above) <= MOST_LEVELS:
        path, node, left = waiting.pop()
        if left:
            del above[id(node)]
        elif (children := _children(node)) is not None:
            if id(node) in above:
                return f"{name} must not contain itself, got {above[id(node)]} again at {path}"
            above[id(node)] = path
            waiting.append((path, node, True))
            waiting += [(f"{path}[{key!r}]", child, False) for key, child in reversed(children)]
    return f"{name} must be nested at most {MOST_LEVELS} deep"


def _check_leaf(path: str, leaf: Any) -> None:
    if not array_api_compat.is_array_api_obj(leaf):
        raise TypeError(f"{path} must be an array, or a tuple, list or dict of arrays, or None, got {type_name(leaf)}")


def _children(tree: Tree) -> list[tuple[Any, Tree]] | None:
    members = _members(tree)
    if members is None:
        return None
    return list(zip(tree if type(tree) in (dict, OrderedDict) else range(len(members)), members, strict=True))


def _members(tree: Tree) -> list[Tree] | None:
    """What a container holds, as a new list; None where *tree* is none."""
    if isinstance(tree, tuple | list):
        return list(tree)
    if type(tree) in (dict, OrderedDict):
        return list(tree.values())
    opened = _opened(tree)
    return None if opened is None else list(opened[0])


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
