"""Makes wheels of the made-up packages in this folder, and installs them as anybody's are."""

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

HERE = Path(__file__).parent
WHEEL = "Wheel-Version: 1.0\nGenerator: ampscale's tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def install(folder, name, entry_points, *modules):
    """
    Installs a package into *folder*.

    *name* is the distribution's; *entry_points* are the lines of the group ``ampscale.backends``; *modules* lie here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", folder, wheel(folder, name, entry_points, *modules)], check=True, timeout=120)
    return folder


def wheel(folder, name, entry_points, *modules):
    """A wheel of version 0.1 in *folder*."""
    stem = f"{name.replace('-', '_')}-0.1"
    files = {module: (HERE / module).read_bytes() for module in modules}
    files[f"{stem}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n".encode()
    files[f"{stem}.dist-info/WHEEL"] = WHEEL.encode()
    files[f"{stem}.dist-info/entry_points.txt"] = "\n".join(["[ampscale.backends]", *entry_points, ""]).encode()
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{path},sha256={digest(data)},{len(data)}" for path, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for inside, data in files.items():
            archive.writestr(inside, data)
    return path


def digest(data):
    """SHA-256 as RECORD wants it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def python(code, *folders, **environment):
    """What a fresh interpreter does with *code*; *folders* are where it looks for modules first."""
    paths = os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AMPSCALE")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        env={**variables, "PYTHONPATH": paths, **environment},
    )
