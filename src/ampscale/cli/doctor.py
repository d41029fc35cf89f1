"""
What is here: the array libraries, what they can do, and which one is chosen.

Needs neither click nor rich, nor any array library but NumPy. Of all commands it alone imports every library there is.

Spec: BACKENDS-failure-reported, BACKENDS-wrong-value.
"""

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Any

from .. import __version__
from ..backends import Backend, generic, list_backends
from ..backends.choice import chosen, configured
from ..backends.registry import RESERVED, is_imported, is_installed, label, load, packages_of, why_not
from ..core.dtypes import name_of
from ..core.typing import Array, Namespace
from ..parsing import cut

COLUMNS = ("backend", "version", "imported", "devices", "float16", "bfloat16", "gradients", "package", "usable")


def main(arguments: list[str]) -> int:
    """Prints what was found. 1 where the chosen backend cannot be used, or one that a package brings fails; else 0."""
    parser = argparse.ArgumentParser(
        prog="ampscale doctor", description="Says which array libraries are here, and what is chosen."
    )
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    as_json = parser.parse_args(arguments).json
    with redirect_stdout(sys.stderr):  # a library may say something when it is imported
        found = examined()
    sys.stdout.write((json.dumps(found, indent=2) if as_json else text(found)) + "\n")
    return 1 if found["problems"] else 0


def examined() -> dict[str, Any]:
    """All facts, for JSON. Libraries are imported."""
    imported = {name: is_imported(name) for name in list_backends()}
    rows = [_backend(name, imported[name]) for name in imported]
    choice = _choice()
    problems = [*filter(None, [choice.pop("why_not")]), *_failing()]
    return {
        "ampscale": __version__,
        "python": platform.python_version(),
        "chosen": choice,
        "backends": rows,
        "problems": problems,
    }


def text(found: dict[str, Any]) -> str:
    """The facts, for reading."""
    head = [("ampscale", found["ampscale"]), ("python", found["python"])]
    head += [(name, _cell(found["chosen"][key])) for name, key in (("chosen", "name"), ("by", "source"))]
    rows = [[_cell(row.get(column)) for column in COLUMNS[:-1]] + [_usable(row)] for row in found["backends"]]
    problems = [f"problem: {problem}" for problem in found["problems"]]
    return "\n".join([*_aligned(head), "", *_aligned([COLUMNS, *rows]), *([""] * bool(problems)), *problems])


def _choice() -> dict[str, Any]:
    """What is chosen, by whom, and why it cannot be used."""
    choice: dict[str, Any] = {"name": None, "source": None, "why_not": None}
    try:
        choice |= {key: cut(value, 400) for key, value in configured()._asdict().items()}
        chosen()
    except (TypeError, ValueError) as error:
        choice["why_not"] = str(error)
    return choice


def _failing() -> Iterator[str]:
    """What is wrong with the backends that installed packages bring."""
    for name in list_backends():
        if name in RESERVED:
            yield from (f"{package} brings a backend called {name!r}, which is taken" for package in packages_of(name))
        elif (reason := why_not(name)) and reason.startswith("failed"):
            yield f"the backend {label(name)} {reason}"


def _backend(name: str, imported: bool) -> dict[str, Any]:
    """The facts about one backend; None for what cannot be found out."""
    facts: dict[str, Any] = {"backend": name, "package": None, "installed": None, "imported": None}
    facts |= dict.fromkeys(("version", "devices", "float16", "bfloat16", "gradients"))
    if name != generic.NAME:
        packages = [] if name in RESERVED else packages_of(name)
        facts |= {"package": ", ".join(packages) or None, "installed": is_installed(name), "imported": imported}
    if facts["installed"]:
        facts |= _abilities(name)
    reason = why_not(name)
    return {**facts, "usable": reason is None, "why_not": reason}


def _abilities(name: str) -> dict[str, Any]:
    """What the library called *name*, which is imported, can do."""
    with suppress(RuntimeError):  # `why_not` tells
        load(name)
    version = getattr(sys.modules.get(name), "__version__", None)
    if why_not(name):
        return {"version": version}
    backend = load(name)
    dtypes = {dtype: _adds(backend, dtype) for dtype in ("float16", "bfloat16")}
    return {"version": version, "devices": [*backend.devices()], **dtypes, "gradients": _differentiates(backend)}


def _adds(backend: Backend, dtype: str) -> bool:
    """Whether arrays of *dtype* can be made and added up: it is tried."""
    try:
        xp = backend.namespace()
        values = xp.asarray([1.5, 2.5], dtype=_dtype(xp, dtype))
        return name_of(values.dtype) == dtype and _number(values + values, 1) == 5.0
    except Exception:  # noqa: BLE001 - a library may say no in any way
        return False


def _differentiates(backend: Backend) -> bool:
    """Whether the backend knows that the derivative of x**2 is 6 where x is 3."""
    try:
        xp = backend.namespace()
        loss, pullback = backend.vjp(lambda values: (values * values)[0], xp.asarray([3.0], dtype=xp.float32))
        return _number(pullback(xp.ones_like(loss)), 0) == 6.0
    except Exception:  # noqa: BLE001 - a library may say no in any way
        return False


def _dtype(xp: Namespace, name: str) -> Any:
    """The library's own dtype of this name, or that of ml_dtypes."""
    return getattr(xp, name, None) or getattr(import_module("ml_dtypes"), name)


def _number(values: Array, index: int) -> float:
    return float(values[index])


def _usable(row: dict[str, Any]) -> str:
    return "yes" if row["usable"] else f"no: {row['why_not']}"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) if isinstance(value, list) else value) or "-"


def _aligned(rows: list[Any]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
