"""The part of an adapter's source that some of its methods need, as it was written, and without anything of ampscale."""

import ast
import copy
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator, Set
from types import ModuleType
from typing import Any

UNSUPPORTED = "class Unsupported(Exception):\n    pass"
_NOT_ITS_OWN = ("builtins", "typing", "abc", f"{__package__}.adapter")


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
        wanted = _with_those_called(classes, methods)
        names = {kind.__name__ for kind in classes}
        pieces = [piece for kind in classes for piece in _Module(sys.modules[kind.__module__]).needed(kind, wanted, names)]
        return _put_together([*dict.fromkeys(pieces), _making(adapter)])
    except (OSError, TypeError, _Unwritable):
        return ""


class _Module:
    """One module's source, by the names that it defines."""

    def __init__(self, module: ModuleType) -> None:
        text = inspect.getsource(module)
        self._lines = text.splitlines()
        self._defined = {name: node for node in ast.parse(text).body for name in _names_defined(node)}

    def needed(self, kind: type, methods: Set[str], known: Set[str]) -> Iterator[str]:
        """What these methods of the class need and is not *known*, in the module's order, the class last."""
        node = self._defined.get(kind.__name__)
        if not isinstance(node, ast.ClassDef):
            raise _Unwritable(kind.__name__)
        kept = [item for item in node.body if not _is_left_out(item, methods)]
        bases = [base for base in node.bases if ast.unparse(base) not in ("Adapter", "Protocol")]
        found: dict[str, ast.stmt] = {}
        for needing in (*kept, *bases, *node.decorator_list):
            self._gather(needing, found, set(known))
        for statement in sorted(set(found.values()), key=lambda statement: statement.lineno):
            yield self._written(statement, {name for name, where in found.items() if where is statement})
        head = f"class {node.name}({', '.join(map(ast.unparse, bases))}):" if bases else f"class {node.name}:"
        marks = [f"@{ast.unparse(mark)}" for mark in node.decorator_list]
        body = "\n\n".join(self._text(item) for item in kept) or "    pass"
        yield "\n".join([*marks, head, body])

    def _gather(self, node: ast.AST, found: dict[str, ast.stmt], seen: set[str]) -> None:
        bare = _Bare().visit(copy.deepcopy(node))
        for name in {inner.id for inner in ast.walk(bare) if isinstance(inner, ast.Name)} - seen:
            seen.add(name)
            statement = self._defined.get(name)
            if statement is None:
                continue
            if _is_ours(statement) and name != "Unsupported":
                raise _Unwritable(name)
            found[name] = statement
            if not _is_ours(statement):
                self._gather(statement, found, seen)

    def _written(self, statement: ast.stmt, names: Set[str]) -> str:
        if _is_ours(statement):
            return UNSUPPORTED
        if isinstance(statement, ast.Import | ast.ImportFrom):
            kept = [alias for alias in statement.names if _bound(alias) in names]
            return ast.unparse(type(statement)(**{**vars(statement), "names": kept}))
        return self._text(statement)

    def _text(self, node: ast.stmt) -> str:
        first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
        return "\n".join(self._lines[first - 1 : node.end_lineno])


class _Bare(ast.NodeTransformer):
    """Without annotations, which may name what is not needed when the code runs."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node


def _with_those_called(classes: list[type], methods: Set[str]) -> set[str]:
    """*methods*, and those of the same object that they call."""
    wanted, found = {"__init__", "__post_init__", *methods}, set[str]()
    while new := wanted - found:
        found |= new
        members = (vars(kind)[name] for kind in classes for name in new & set(vars(kind)))
        wanted = wanted.union(*(_names_of_self(member) for member in members if inspect.isfunction(member)))
    return found


def _names_of_self(function: Any) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    owners = {"self", *function.__code__.co_varnames[:1]}
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if ast.unparse(node.value) in owners | {"super()"}}


def _is_left_out(item: ast.stmt, methods: Set[str]) -> bool:
    """A method that is not needed, the class's docstring, or what it says to ampscale."""
    if isinstance(item, ast.FunctionDef):
        return item.name not in methods
    targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
    return isinstance(item, ast.Expr) or any(isinstance(target, ast.Name) and target.id == "info" for target in targets)


def _names_defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (_bound(alias) for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _is_ours(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.level > 0 or (statement.module or "").partition(".")[0] == "ampscale"
    return isinstance(statement, ast.Import) and any(alias.name.partition(".")[0] == "ampscale" for alias in statement.names)


def _put_together(pieces: list[str]) -> str:
    """Imports above, a line each; between all others two empty ones."""
    imports = sorted(piece for piece in pieces if piece.startswith(("import ", "from ")))
    rest = [piece for piece in pieces if piece not in imports]
    return "\n\n\n".join(["\n".join(imports), *rest] if imports else rest)


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
    trees = (ast.parse(textwrap.dedent(inspect.getsource(maker))) for maker in makers)
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def _can_be_written(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
