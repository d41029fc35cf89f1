"""The part of an adapter's source that some of its methods need, as it was written, and without anything of ampscale."""

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator, Set
from functools import cache
from importlib.util import resolve_name
from typing import Any

from ..model.methods import METHODS

SUITE = __name__.partition(".")[0]
UNSUPPORTED = "class Unsupported(Exception):\n    pass"
_NOT_ITS_OWN = ("builtins", "typing", "abc", f"{SUITE}.model.adapter")


class _Unwritable(Exception):  # noqa: N818 - a way out, not an error
    pass


def source_of(adapter: object, methods: Set[str]) -> str:
    """
    Imports, helpers, the class with these methods and those that they call, and a line that makes the adapter.

    Returns:
        Python source that defines `adapter`; empty where the adapter was not made in a file, where something in it cannot be
        written down, or where it needs ampscale.
    """
    try:
        classes = [kind for kind in reversed(type(adapter).__mro__) if kind.__module__ not in _NOT_ITS_OWN]
        source = _Source(classes, _with_those_called(classes, methods))
        imports = ["\n".join(sorted(source.imports))] if source.imports else []
        return "\n\n\n".join([*imports, *source.pieces.values(), _making(adapter)])
    except (OSError, TypeError, _Unwritable):
        return ""


class _Source:
    """What these methods of these classes need: lines of imports, and definitions by their names, each after its own needs."""

    def __init__(self, classes: list[type], methods: Set[str]) -> None:
        self.imports: set[str] = set()
        self.pieces: dict[str, str] = {}
        self._methods = methods
        self._homes: dict[str, str] = {kind.__name__: kind.__module__ for kind in classes}  # the module of each name
        self._adapters = set(self._homes)
        for kind in classes:
            self._take(kind.__name__, kind.__module__)

    def _take(self, name: str, module: str) -> None:
        statement = _definitions(module).get(name)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._take_import(statement, name, module)
        elif statement is None or self._homes.setdefault(name, module) != module:
            raise _Unwritable(f"{name} of {module}")
        elif name not in self.pieces:
            self.pieces[name] = ""  # where two need each other
            if name in self._adapters and isinstance(statement, ast.ClassDef):
                statement = self._pruned(statement)
            for needed in _names(statement):
                if needed in _definitions(module):
                    self._take(needed, module)
            del self.pieces[name]
            self.pieces[name] = _text(statement, module)

    def _pruned(self, node: ast.ClassDef) -> ast.ClassDef:
        """The class with these methods alone, and without what it says to the suite."""
        bases = [base for base in node.bases if ast.unparse(base) not in ("Adapter", "Protocol")]
        kept = [item for item in node.body if not _is_left_out(item, self._methods)]
        return ast.ClassDef(node.name, bases, [], kept, node.decorator_list)

    def _take_import(self, statement: ast.Import | ast.ImportFrom, name: str, module: str) -> None:
        (alias,) = (alias for alias in statement.names if _bound(alias) == name)
        place = _place(statement, alias, module)
        if place.partition(".")[0] not in ("ampscale", SUITE):
            self.imports.add(ast.unparse(type(statement)(**{**vars(statement), "names": [alias]})))
        elif name == "Unsupported":
            self.pieces[name] = UNSUPPORTED
        elif place.startswith(SUITE) and name == alias.name:
            self._take(name, place)
        else:
            raise _Unwritable(name)


@cache
def _lines(module: str) -> list[str]:
    return inspect.getsource(sys.modules[module]).splitlines()


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """The statements of a module by the names that they define."""
    return {name: node for node in ast.parse("\n".join(_lines(module))).body for name in _names_defined(node)}


def _text(node: ast.stmt, module: str) -> str:
    """As it was written; of a class that was pruned its items are."""
    if isinstance(node, ast.ClassDef) and not hasattr(node, "lineno"):
        head = ast.unparse(ast.ClassDef(node.name, node.bases, [], [], node.decorator_list))
        return head + "\n" + ("\n\n".join(_text(item, module) for item in node.body) or "    pass")
    first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
    return "\n".join(_lines(module)[first - 1 : node.end_lineno])


def _names(node: ast.AST) -> Iterator[str]:
    """The names in it that have to be there when it runs, which those in annotations need not."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                yield from _names(child) if isinstance(child, ast.AST) else ()


def _names_defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from map(_bound, node.names)
    else:
        yield from _targets(node)


def _targets(node: ast.stmt) -> Iterator[str]:
    """The names that an assignment gives values to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _place(statement: ast.Import | ast.ImportFrom, alias: ast.alias, module: str) -> str:
    """The module from which something is imported."""
    if isinstance(statement, ast.Import):
        return alias.name
    return resolve_name("." * statement.level + (statement.module or ""), sys.modules[module].__package__)


def _is_left_out(item: ast.stmt, methods: Set[str]) -> bool:
    """A method that is not needed, the class's docstring, or what it says to the suite."""
    if isinstance(item, ast.FunctionDef):
        return item.name not in methods
    said = set(_targets(item))
    return isinstance(item, ast.Expr) or "info" in said or (bool(said) and said <= set(METHODS) - methods)


def _with_those_called(classes: list[type], methods: Set[str]) -> set[str]:
    """*methods*, and those of the same object that they call."""
    wanted, found = {"__init__", "__post_init__", *methods}, set[str]()
    while new := wanted - found:
        found |= new
        members = (vars(kind)[name] for kind in classes for name in new & set(vars(kind)))
        wanted = wanted.union(*(_names_of_self(member) for member in members if inspect.isfunction(member)))
    return found


def _names_of_self(function: Any) -> set[str]:
    owners = {"self", *function.__code__.co_varnames[:1], "super()"}
    return {node.attr for node in _attributes_in(function) if ast.unparse(node.value) in owners}


def _attributes_in(function: Any) -> Iterator[ast.Attribute]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _making(adapter: object) -> str:
    """A line that makes the adapter again, with what it was made with; what calls add, calls add again."""
    name = type(adapter).__name__
    if type(adapter).__init__ is object.__init__:
        return f"adapter = {name}()"
    given = _set_by_init(type(adapter))
    held = {key: value for key, value in vars(adapter).items() if key in given and key != "info"}
    if not all(_can_be_written(value) for value in held.values()):
        raise _Unwritable(name)
    return f"adapter = {name}.__new__({name})" + (f"\nadapter.__dict__.update({held!r})" if held else "")


def _set_by_init(kind: type) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    makers = [vars(base)["__init__"] for base in kind.__mro__[:-1] if inspect.isfunction(vars(base).get("__init__"))]
    return {node.attr for maker in makers for node in _attributes_in(maker) if isinstance(node.ctx, ast.Store)}


def _can_be_written(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
