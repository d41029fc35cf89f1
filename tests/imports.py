"""Helpers of the architecture tests of both distributions: the imports of a file, and code that executes data."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Modules and calls that execute code from data. Programs within strings are searched, too.
CODE_FROM_DATA = re.compile(
    r"\b(from |import\b.*)(pickle|_pickle|cloudpickle|marshal|shelve|dill|joblib)\b"
    r"|(?<![.\w])(eval|exec)\(|allow_pickle=True|torch\.load\((?!.*weights_only=True)"
)


def name_of(path: Path, source: Path) -> str:
    """Return the name of the module in a file of the package whose folder is *source*."""
    return ".".join((source.name, *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")


def imported(path: Path, source: Path) -> Iterator[str]:
    """Yield the absolute name of every module or object that a file imports, also within functions."""
    package = (source.name, *path.relative_to(source).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def modules_in_cycles(files: list[Path], source: Path) -> list[str]:
    """Return the modules that are in a cycle of imports, or import such a module, directly or not."""
    modules = {name_of(path, source): path for path in files}
    targets = {}
    for name, path in modules.items():
        imports = {module if module in modules else module.rpartition(".")[0] for module in imported(path, source)}
        targets[name] = imports & (set(modules) - {name})
    while removable := [name for name, names in targets.items() if not names & set(targets)]:
        for name in removable:
            del targets[name]
    return sorted(targets)


def code_from_data(files: list[Path]) -> list[tuple[str, str]]:
    """Return the name of each file that runs code from data, and the code that does."""
    return [(path.name, match[0]) for path in files for match in CODE_FROM_DATA.finditer(path.read_text("utf-8"))]
