"""Published kernels in C++, compiled for the host."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HOST = Path(__file__).parents[1] / "host"


def step_of(wrapper: str, kernel: Path) -> Any:
    """The C function `step` of a file in host/, built around a published kernel."""
    built = Path(tempfile.mkdtemp()) / "step.so"
    words = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-I{HOST}", f'-DKERNEL="{kernel.resolve()}"']
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *words, str(HOST / wrapper), "-o", str(built)], check=True)
    return ctypes.CDLL(str(built)).step
