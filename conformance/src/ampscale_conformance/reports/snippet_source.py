"""Extraction of the source code of an adapter: the parts that some of its methods require, without imports of ampscale."""

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator, Set
from functools import cache
from importlib.util import resolve_name
from typing import Any

from ..model.adapter import METHODS

SUITE = __name__.partition(".")[0]
LIBRARY = f"{SUITE}.adapters.base.Library"  # a module that is imported at its first use
UNSUPPORTED = "class Unsupported(Exception):\n    pass"
_EXCLUDED_MODULES = ("builtins", "typing", "abc", f"{SUITE}.model.adapter")


class _Unwritable(Exception):  # noqa: N818 - control flow, not an error
    pass


def source_of(adapter: object, methods: Set[str]) -> str:
    """
    Return source code that defines `adapter`: imports, helpers, the class with these methods and those that they call.

    Return "" if the adapter's class is not in a file, or the adapter contains objects without a literal or requires ampscale.
    """
    try:
        classes = [cls for cls in reversed(type(adapter).__mro__) if cls.__module__ not in _EXCLUDED_MODULES]
        source = _Source(classes, _with_called_methods(classes, methods))
        imports = ["\n".join(sorted(source.imports))] if source.imports else []
        return "\n\n\n".join([*imports, *source.pieces.values(), _construction(adapter)])
    except (OSError, TypeError, SyntaxError, _Unwritable):  # a method can be a part of a statement, such as a lambda
        return ""


class _Source:
    """Imports and definitions that some methods of an adapter require. A definition follows those that it requires."""

    def __init__(self, classes: list[type], methods: Set[str]) -> None:
        self.imports: set[str] = set()
        self.pieces: dict[str, str] = {}
        self._methods = methods
        self._modules: dict[str, str] = {cls.__name__: cls.__module__ for cls in classes}  # module that defines each name
        self._adapters = set(self._modules)
        for cls in classes:
            self._take(cls.__name__, cls.__module__)

    def _take(self, name: str, module: str) -> None:
        """Add the definition or import of a name of a module, and all that the definition requires."""
        statement, value = _definitions(module).get(name), vars(sys.modules[module]).get(name)
        if f"{type(value).__module__}.{type(value).__name__}" == LIBRARY:
            library = vars(value)["_name"]
            self.imports.add(f"import {library}" if library == name else f"import {library} as {name}")
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            self._take_import(statement, name, module)
        elif statement is None or self._modules.setdefault(name, module) != module:
            raise _Unwritable(f"{name} of {module}")
        elif name not in self.pieces:
            self.pieces[name] = ""  # ends the recursion if two definitions require each other
            if name in self._adapters and isinstance(statement, ast.ClassDef):
                statement = self._pruned(statement)
            for needed in _names(statement):
                if needed in _definitions(module):
                    self._take(needed, module)
            del self.pieces[name]  # the definition must follow those that it requires
            self.pieces[name] = _text(statement, module)

    def _pruned(self, node: ast.ClassDef) -> ast.ClassDef:
        """Return the class with only the required methods, and without its docstring and `info`."""
        bases = [base for base in node.bases if ast.unparse(base) not in ("Adapter", "Protocol")]
        items = [item for item in node.body if not _is_unused(item, self._methods)]
        return ast.ClassDef(node.name, bases, [], items, node.decorator_list)

    def _take_import(self, statement: ast.Import | ast.ImportFrom, name: str, module: str) -> None:
        (alias,) = (alias for alias in statement.names if _bound(alias) == name)
        source_module = _module_of(statement, alias, module)
        if source_module.partition(".")[0] not in ("ampscale", SUITE):
            self.imports.add(ast.unparse(type(statement)(**{**vars(statement), "names": [alias]})))
        elif name == "Unsupported":
            self.pieces[name] = UNSUPPORTED
        elif source_module.startswith(SUITE) and name == alias.name:
            self._take(name, source_module)
        else:
            raise _Unwritable(name)


@cache
def _lines(module: str) -> list[str]:
    return inspect.getsource(sys.modules[module]).splitlines()


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return the statements of a module by the names that they define."""
    return {name: node for node in ast.parse("\n".join(_lines(module))).body for name in _names_defined(node)}


def _text(node: ast.stmt, module: str) -> str:
    """Return the source text of a statement; for a pruned class, join the source texts of its items."""
    if isinstance(node, ast.ClassDef) and not hasattr(node, "lineno"):
        head = ast.unparse(ast.ClassDef(node.name, node.bases, [], [], node.decorator_list))
        return head + "\n" + ("\n\n".join(_text(item, module) for item in node.body) or "    pass")
    first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
    return "\n".join(_lines(module)[first - 1 : node.end_lineno])


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that the node uses at run time, that is, outside annotations."""
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
    """Yield the names that an assignment binds."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    yield from (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _module_of(statement: ast.Import | ast.ImportFrom, alias: ast.alias, module: str) -> str:
    """Return the module from which a name is imported."""
    if isinstance(statement, ast.Import):
        return alias.name
    return resolve_name("." * statement.level + (statement.module or ""), sys.modules[module].__package__)


def _is_unused(item: ast.stmt, methods: Set[str]) -> bool:
    """Return True for the docstring, for `info`, and for a method that is not required."""
    if isinstance(item, ast.FunctionDef):
        return item.name not in methods
    names = set(_targets(item))
    return isinstance(item, ast.Expr) or "info" in names or (bool(names) and names <= set(METHODS) - methods)


def _with_called_methods(classes: list[type], methods: Set[str]) -> set[str]:
    """Return *methods*, and all methods of the same object that they call."""
    required, visited = {"__init__", "__post_init__", *methods}, set[str]()
    while new := required - visited:
        visited |= new
        members = (vars(cls)[name] for cls in classes for name in new & set(vars(cls)))
        required = required.union(*(_names_of_self(member) for member in members if inspect.isfunction(member)))
    return visited


def _names_of_self(function: Any) -> set[str]:
    owners = {"self", *function.__code__.co_varnames[:1], "super()"}
    return {node.attr for node in _attributes_in(function) if ast.unparse(node.value) in owners}


def _attributes_in(function: Any) -> Iterator[ast.Attribute]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _construction(adapter: object) -> str:
    """Return statements that recreate the adapter with the attributes that its `__init__` sets; calls set the others."""
    name = type(adapter).__name__
    if type(adapter).__init__ is object.__init__:
        return f"adapter = {name}()"
    names = _set_by_init(type(adapter))
    state = {key: value for key, value in vars(adapter).items() if key in names and key != "info"}
    if not all(_has_literal(value) for value in state.values()):
        raise _Unwritable(name)
    return f"adapter = {name}.__new__({name})" + (f"\nadapter.__dict__.update({state!r})" if state else "")


def _set_by_init(cls: type) -> set[str]:
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls)}
    initializers = [vars(base)["__init__"] for base in cls.__mro__[:-1] if inspect.isfunction(vars(base).get("__init__"))]
    return {node.attr for init in initializers for node in _attributes_in(init) if isinstance(node.ctx, ast.Store)}


def _has_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
