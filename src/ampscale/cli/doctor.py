"""
`ampscale doctor`: the array libraries that are installed, what they can do, and which one is chosen.

This command requires only NumPy, not click or rich. No other command imports all installed array libraries.

Spec: BACKENDS-failure-reported, BACKENDS-wrong-value.
"""

import argparse
import json
import platform
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from .. import __version__
from ..backends import Backend, generic, list_backends
from ..backends.choice import configured, configured_backend
from ..backends.cpu.fused import kernel_choice_host
from ..backends.registry import RESERVED, is_imported, is_installed, label, load, packages_of, why_not
from ..core.dtypes import name_of
from ..parsing import cut

COLUMNS = ("backend", "version", "imported", "devices", "float16", "bfloat16", "gradients", "usable")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print *message* on one line to stderr, and exit with code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: list[str]) -> int:
    """Print the report, and return the exit code: 1 if the report contains problems, else 0."""
    parser = _Parser(
        "ampscale doctor",
        description="List the installed array libraries, what they can do, and the chosen one.",
        epilog="examples:\n  ampscale doctor\n  ampscale doctor --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        nearest = get_close_matches(unknown[0], ["--json", "--help"], n=1)
        remedy = f"did you mean {nearest[0]}?" if nearest else "see ampscale doctor --help"
        parser.error(f"no such option or argument {cut(unknown[0])}; {remedy}")
    with redirect_stdout(sys.stderr):  # a library may print something when it is imported
        report = examine()
    sys.stdout.write((json.dumps(report, indent=2) if options.json else text(report)) + "\n")
    return 1 if report["problems"] else 0


def examine() -> dict[str, Any]:
    """Import the installed libraries and return the report, as JSON-serializable values."""
    imported = {name: is_imported(name) for name in list_backends()}  # before this function imports any
    rows = [_backend(name, was_imported) for name, was_imported in imported.items()]
    choice = _choice()
    kernels = _kernels()
    problems = [*filter(None, [choice.pop("why_not"), kernels.pop("why_not")]), *_failing()]
    versions = {"ampscale": __version__, "python": platform.python_version()}
    cuda = _cuda_kernels()
    return {**versions, "chosen": choice, "kernels": kernels, "cuda_kernels": cuda, "backends": rows, "problems": problems}


def text(report: dict[str, Any]) -> str:
    """Return the report as text: versions and chosen backend, a table of the backends with remarks, and the problems."""
    chosen_by = [("chosen", _cell(report["chosen"]["name"])), ("by", _cell(report["chosen"]["source"]))]
    head = [("ampscale", report["ampscale"]), ("python", report["python"]), *chosen_by]
    for title, kernels in (("kernels", report["kernels"]), ("cuda kernels", report["cuda_kernels"])):
        if kernels and kernels["name"]:
            head.append((title, f"{kernels['name']} ({kernels['reason']})"))
    rows = [[_cell(row.get(column)) for column in COLUMNS] for row in report["backends"]]
    remarks = []
    for row in report["backends"]:
        if row["package"] is not None:
            remarks.append(f"{row['backend']}: a backend of {row['package']}")
        if not row["usable"]:
            remarks.append(f"{row['backend']}: {row['why_not']}")
    problems = [f"problem: {problem}" for problem in report["problems"]]
    blocks = filter(None, [_aligned(head), _aligned([COLUMNS, *rows]), remarks, problems])
    fill = partial(textwrap.fill, width=80, subsequent_indent="  ", break_on_hyphens=False)
    return "\n\n".join("\n".join(map(fill, lines)) for lines in blocks)


def _choice() -> dict[str, Any]:
    """Return the chosen backend, the source of the choice, and the reason if the backend cannot be used."""
    choice: dict[str, Any] = {"name": None, "source": None, "why_not": None}
    try:
        choice |= {key: cut(value, 400) for key, value in configured()._asdict().items()}
        configured_backend()
    except (TypeError, ValueError) as error:
        choice["why_not"] = str(error)
    return choice


def _kernels() -> dict[str, Any]:
    """Return the kernels for arrays in main memory, and why they were chosen, or why the configured kernels cannot be used."""
    try:
        module, reason = kernel_choice_host()
    except (ImportError, ValueError) as error:
        return {"name": None, "reason": None, "why_not": str(error)}
    return {"name": "numpy" if module is None else "numba", "reason": reason, "why_not": None}


def _cuda_kernels() -> dict[str, str] | None:
    """Return the kernels for torch's CUDA tensors and the reason for this choice; None if torch finds no CUDA device."""
    if why_not("torch") or not any(device.startswith("cuda") for device in load("torch").devices()):
        return None
    from ..backends.torch.cuda_launches import kernel_choice_host as cuda_choice_host

    module, reason = cuda_choice_host()
    return {"name": "torch" if module is None else "cupy", "reason": reason}


def _failing() -> Iterator[str]:
    """Yield a sentence for each problem with a backend of an installed package."""
    for name in list_backends():
        if name in RESERVED:
            yield from (f"{package} registers the backend {name!r}, which ampscale reserves" for package in packages_of(name))
        elif (reason := why_not(name)) and reason.startswith("failed"):
            yield f"the backend {label(name)} {reason}"


def _backend(name: str, imported: bool) -> dict[str, Any]:
    """Return the row of the table for one backend. Unknown values are None."""
    facts: dict[str, Any] = {"backend": name, "package": None, "installed": None, "imported": None}
    facts |= dict.fromkeys(("version", "devices", "float16", "bfloat16", "gradients"))
    if name != generic.NAME:
        packages = [] if name in RESERVED else packages_of(name)
        facts |= {"package": ", ".join(packages) or None, "installed": is_installed(name), "imported": imported}
    if facts["installed"]:
        facts |= _capabilities(name)
    reason = why_not(name)
    return {**facts, "usable": reason is None, "why_not": reason}


def _capabilities(name: str) -> dict[str, Any]:
    """Import the library called *name*, and return its version and capabilities."""
    with suppress(RuntimeError):  # `why_not` returns the reason of the failure
        load(name)
    version = {"version": getattr(sys.modules.get(name), "__version__", None)}
    if why_not(name):
        return version
    backend = load(name)
    dtypes = {dtype: _supports(backend, dtype) for dtype in ("float16", "bfloat16")}
    return {**version, "devices": [*backend.devices()], **dtypes, "gradients": _differentiates(backend)}


def _supports(backend: Backend, dtype: str) -> bool:
    """Return True if the backend can create and add arrays of *dtype*."""
    with suppress(Exception):  # a library may fail in any way
        xp = backend.namespace()
        values = xp.asarray([1.5, 2.5], dtype=getattr(xp, dtype, None) or getattr(import_module("ml_dtypes"), dtype))
        return name_of(values.dtype) == dtype and float((values + values)[1]) == 5.0
    return False


def _differentiates(backend: Backend) -> bool:
    """Return True if the backend computes 6 as the derivative of x**2 at x = 3."""
    with suppress(Exception):  # a library may fail in any way
        xp = backend.namespace()
        loss, pullback = backend.vjp(lambda values: (values * values)[0], xp.asarray([3.0], dtype=xp.float32))
        return float(pullback(xp.ones_like(loss))[0]) == 6.0
    return False


def _cell(value: Any) -> str:
    """Return a bool, a text or a list of texts as text; "-" if it is unknown or empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) if isinstance(value, list) else value) or "-"


def _aligned(rows: list[Any]) -> list[str]:
    """Return rows of texts as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
