"""
Pytrees: nested tuples, lists, dicts and NamedTuples of arrays, and the container types that a library registers.

None stands for a missing array, such as the gradient of an unused parameter, and is kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import array_api_compat

from .type_names import type_name
from .typing import Array, Flag, Tree

# Children of a container, and a function that builds a container from new children.
Flattened = tuple[list[Tree], Callable[[list[Tree]], Tree]]

MOST_LEVELS = 300  # levels of nested containers; two calls for each of them stay within Python's recursion limit

_REMEDIES = {  # what to pass instead of an object with this attribute: a network, a module, an iterator, or a function
    "params": "; pass network.params",
    "named_parameters": "; pass {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}",
    "trace_state": "; for flax nnx, pass nnx.as_pure(nnx.state(model, nnx.Param))",
    "__next__": "; pass a list of its arrays",
    "__name__": "; for equinox, pass eqx.filter(model, eqx.is_inexact_array)",
}

_flatteners: list[Callable[[Any], Flattened | None]] = []


def register_container(flatten: Callable[[Any], Flattened | None]) -> None:
    """Register *flatten*, which flattens the containers of an array library, and returns None for an object of any other type."""
    _flatteners.append(flatten)


def is_array(value: Any) -> bool:
    """Return True if *value* is an array. A class of arrays or of NumPy scalars, such as ``np.float32``, is not."""
    return array_api_compat.is_array_api_obj(value) and not isinstance(value, type)


def leaves(tree: Tree, name: str = "tree") -> list[Array]:
    """Return the arrays of *tree* in order, dicts in insertion order. Raise the errors of `leaves_with_paths`."""
    try:
        arrays = _gathered(tree)
    except RecursionError:
        raise ValueError(_too_deep(tree, name)) from None
    if arrays is None:
        return [leaf for _, leaf in leaves_with_paths(tree, name)]  # raises an error that names the path
    return arrays


def leaves_with_paths(tree: Tree, name: str = "tree") -> list[tuple[str, Array]]:
    """
    Return the leaves of *tree* with their paths. A path is a Python expression that starts with *name*: ``tree['w'][0]``.

    Raises:
        TypeError: An object in the tree is neither a container, nor an array, nor None.
        ValueError: The tree contains itself, or is nested too deeply.
    """
    try:
        return list(_walk(tree, name))
    except RecursionError:
        raise ValueError(_too_deep(tree, name)) from None


def structure(tree: Tree) -> list[Any]:
    """
    Return a list that is equal for two trees if they have the same container types, keys and positions of arrays.

    Each container adds a tuple: its type, its keys, and True if all its members are arrays. If not, its members follow: a
    container as another tuple, an array as "array", None as None. A dict key that does not consist of strings, bytes, numbers
    and None is replaced by its type, since such keys may not compare as equal, and their `repr` may differ between ranks.
    """
    return list(_structure_parts(tree))


def one_of_each_type(values: Sequence[Any]) -> list[Any]:
    """Return one of *values* for each of their types, so that type checks need not visit all of ten thousand values."""
    if len(set(map(type, values))) == 1:
        return [values[0]]
    return list(dict(zip(map(type, values), values, strict=True)).values())


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """
    Replace each array of *tree* by ``function(array, *corresponding arrays of others)``.

    If another tree has None instead of an array or of a container, the function receives None. A tree with different keys or
    another length raises a ValueError.
    """
    if tree is None:
        return None
    members = _members(tree)
    if members is None:
        _check_leaf("tree", tree)
        for other in others:
            if _children(other) is not None:
                raise ValueError(f"trees must have the same structure: expected an array, got {_outline(other)}")
        return function(tree, *others)
    columns = [_matching(tree, len(members), other) for other in others]
    # Most trees are one list or dict of many arrays. For these, this is five times faster than the recursion below.
    if _are_arrays(members) and all(_are_arrays([other for other in column if other is not None]) for column in columns):
        return _rebuild(tree, list(map(function, members, *columns)))
    return _rebuild(tree, [map_leaves(function, *row) for row in zip(members, *columns, strict=True)])


def zip_leaves(tree: Tree, *others: Tree) -> list[tuple[Any, ...]]:
    """Return a tuple for each array of *tree*: the array, and its counterpart or None in each of the other trees."""
    rows: list[tuple[Any, ...]] = []
    map_leaves(lambda *row: rows.append(row), tree, *others)
    return rows


def unflatten(tree: Tree, values: Iterable[Any]) -> Tree:
    """Replace the arrays of *tree* by *values*, in order."""
    remaining = iter(values)
    return map_leaves(lambda _: next(remaining), tree)


def select(flag: Flag, new: Tree, old: Tree) -> Tree:
    """
    Return *new* where *flag* is True, else *old*, without a host synchronization.

    *flag* is a bool array of shape (), or of the shape of all arrays. The result has the structure of *old*. If *new* has None
    instead of an array, the array of *old* is kept even if *flag* is True.
    """

    def choose(old_leaf: Array, new_leaf: Array | None) -> Array:
        if new_leaf is None:
            return old_leaf
        xp = array_api_compat.array_namespace(old_leaf)
        return xp.astype(xp.where(flag, new_leaf, old_leaf), old_leaf.dtype, copy=False)  # CuPy returns bfloat16 as float32

    return map_leaves(choose, old, new)


def _gathered(tree: Tree, levels: int = MOST_LEVELS) -> list[Array] | None:
    """Return the arrays of *tree*, or None if a leaf is not an array. Raise the RecursionError of `_walk`."""
    if tree is None:
        return []
    children = _members(tree)
    if children is None:
        return [tree] if is_array(tree) else None
    if not levels:
        raise RecursionError
    if _are_arrays(children):
        return children
    arrays: list[Array] = []
    for child in children:
        child_arrays = _gathered(child, levels - 1)
        if child_arrays is None:
            return None
        arrays += child_arrays
    return arrays


def _structure_parts(tree: Tree) -> Iterator[Any]:
    """Yield the members of the list that `structure` returns."""
    members = _members(tree)
    if members is None:
        yield None if tree is None else "array"
        return
    is_flat = _are_arrays(members)
    yield type(tree), _plain_keys(tree, len(members)), is_flat
    if not is_flat:
        for member in members:
            yield from _structure_parts(member)


def _plain_keys(tree: Tree, count: int) -> Sequence[Any]:
    """Return the keys of a dict as `structure` replaces them, the fields of a NamedTuple, or the indices of another container."""
    if type(tree) not in (dict, OrderedDict):
        return getattr(tree, "_fields", range(count))
    return tuple(tree) if set(map(type, tree)) <= {str, int} else tuple(map(_plain_key, tree))


def _plain_key(key: Any) -> Any:
    """Return *key* with every object except tuples, strings, bytes, numbers and None replaced by its type."""
    if isinstance(key, tuple):
        return tuple(map(_plain_key, key))
    return key if key is None or isinstance(key, str | int | float | bytes) else type(key)


def _are_arrays(values: Sequence[Any]) -> bool:
    """Return True if all *values* are arrays."""
    return all(map(is_array, one_of_each_type(values)))


def _walk(tree: Tree, path: str, levels: int = MOST_LEVELS) -> Iterator[tuple[str, Array]]:
    """Yield the path and the array of each leaf; raise a RecursionError if there are more than *levels* levels."""
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
    """Return the error message for a tree that exceeds `MOST_LEVELS`; if the tree contains itself, the message names the path."""
    ancestors: dict[int, str] = {}  # paths by id
    stack = [(name, tree, False)]
    while stack and len(ancestors) <= MOST_LEVELS:
        path, node, visited = stack.pop()
        if visited:
            del ancestors[id(node)]
        elif (children := _children(node)) is not None:
            if id(node) in ancestors:
                return f"{name} must not contain itself, got {ancestors[id(node)]} again at {path}"
            ancestors[id(node)] = path
            stack.append((path, node, True))
            stack += [(f"{path}[{key!r}]", child, False) for key, child in reversed(children)]
    return f"{name} must have at most {MOST_LEVELS} levels of nested containers"


def _check_leaf(path: str, leaf: Any) -> None:
    if not is_array(leaf):
        remedy = next((remedy for name, remedy in _REMEDIES.items() if hasattr(leaf, name)), "")
        actual = leaf if isinstance(leaf, type) else f"{type_name(leaf)}{remedy}"
        raise TypeError(f"{path} must be an array, or a tuple, list or dict of arrays, or None, got {actual}")


def _children(tree: Tree) -> list[tuple[Any, Tree]] | None:
    """Return the keys and children of a container, or None if *tree* is not a container."""
    members = _members(tree)
    if members is None:
        return None
    return list(zip(_keys(tree, len(members)), members, strict=True))


def _keys(tree: Tree, count: int) -> list[Any]:
    """Return the keys of a dict, or the indices of another container with *count* children."""
    return list(tree) if type(tree) in (dict, OrderedDict) else list(range(count))


def _members(tree: Tree) -> list[Tree] | None:
    """Return the children of a container as a new list, or None if *tree* is not a container."""
    if isinstance(tree, tuple | list):
        return list(tree)
    if type(tree) in (dict, OrderedDict):
        return list(tree.values())
    flattened = _flattened(tree)
    return None if flattened is None else list(flattened[0])


def _flattened(tree: Tree) -> Flattened | None:
    """Return the result of the registered function that supports the type of *tree*; None if there is none."""
    if not _flatteners or tree is None or is_array(tree):
        return None
    return next(filter(None, (flatten(tree) for flatten in _flatteners)), None)


def _matching(tree: Tree, count: int, other: Tree) -> list[Tree]:
    """Return the children of *other* in the order of the *count* children of *tree*, or a list of None if *other* is None."""
    if other is None:
        return [None] * count
    if isinstance(tree, tuple | list) and isinstance(other, tuple | list) and len(other) == count:  # as almost always
        return list(other)
    keys, children = _keys(tree, count), _children(other)
    if children is None or sorted(map(repr, keys)) != sorted(repr(key) for key, _ in children):
        raise ValueError(f"trees must have the same structure: expected the keys {keys}, got {_outline(other)}")
    by_key = dict(children)
    return [by_key[key] for key in keys]


def _outline(tree: Tree) -> str:
    """Return the keys of a container, or the type name of another object, for an error message."""
    children = _children(tree)
    return type(tree).__name__ if children is None else f"the keys {[key for key, _ in children]}"


def _rebuild(tree: Tree, children: list[Tree]) -> Tree:
    """Return a container of the type of *tree*, with the keys of *tree* and the given *children*."""
    if type(tree) in (dict, OrderedDict):
        return type(tree)(zip(tree, children, strict=True))
    if hasattr(tree, "_fields"):
        return type(tree)(*children)
    if isinstance(tree, tuple | list):
        rebuilt = type(tree)(children)
        if len(rebuilt) != len(children):
            raise TypeError(f"a subclass of tuple or list must be created from a list of members, got {type(tree).__name__}")
        return rebuilt
    _, build = _flattened(tree)  # type: ignore[misc]  # not None, since *tree* is a container of a registered type
    return build(children)
