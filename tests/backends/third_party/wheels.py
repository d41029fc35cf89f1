"""Installation of the packages in this folder as from wheels, and runs of code in new interpreters."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def install(folder, name, entry_points, *modules):
    """
    Write into *folder* the files that an installer unpacks for version 0.1 of a package. Return *folder*.

    Args:
        folder: Target folder.
        name: Name of the distribution.
        entry_points: Lines of the group ``ampscale.backends``.
        modules: Files in the folder of this module.
    """
    metadata = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    for module in modules:
        (folder / module).write_bytes((HERE / module).read_bytes())
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[ampscale.backends]", *entry_points, ""]))
    return folder


def python(code, *folders, **environment):
    """Return the completed process of *code*, with *folders* first in the module path. Only *environment* configures ampscale."""
    paths = os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AMPSCALE")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        env={**variables, "PYTHONPATH": paths, **environment},
    )
