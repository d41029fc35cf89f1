"""Published kernels in C++, compiled for the host."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HOST = Path(__file__).parents[1] / "host"


def step_of(wrapper: str, kernel: Path) -> Any:
    """Compile a file in host/ with a published kernel, and return its C function `step`."""
    built = Path(tempfile.mkdtemp()) / "step.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-I{HOST}", f'-DKERNEL="{kernel.resolve()}"']
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *options, str(HOST / wrapper), "-o", str(built)], check=True)
    return ctypes.CDLL(str(built)).step
