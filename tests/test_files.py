"""Tests that files are written atomically, and that only one module writes them."""

import ast
import errno
import os
import resource
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from ampscale import presets
from ampscale.checkpoints import write_file
from ampscale.cli.scale_plot import draw
from ampscale.files import read_bounded, write_atomically
from ampscale.simulation import from_csv, from_string, simulate
from ampscale.simulation.recordings.files import read_text

SOURCE = Path(__file__).parent.parent / "src" / "ampscale"
OLD = b"old contents"


WRITERS = {
    "text": lambda path: write_atomically(path, "text"),
    ".json": lambda path: write_file(path, {"scale": 2.0}),
    ".safetensors": lambda path: write_file(path, {"scale": np.float32(2.0)}),
    ".pt": lambda path: write_file(path, {"scale": np.float32(2.0)}),
    ".png": lambda path: draw({"torch": simulate(presets.torch(), from_string("..x."))}, [], path),
}
if find_spec("torch") is None:
    del WRITERS[".pt"]


def opens_for_writing(tree):
    """Yield the numbers of the lines of a module that open a file for writing, or call a function that does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
            texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
            if name in ("write_text", "write_bytes", "tofile", "savefig", "NamedTemporaryFile", "mkstemp"):
                yield node.lineno
            if name in ("open", "fdopen") and any(set("wax+") & set(text) for text in texts if len(text) <= 3):
                yield node.lineno


def test_one_module_opens_files_for_writing():
    """Other programs read a run file while it grows, so its sink is an exception. `scale_plot` draws pictures into memory."""
    lines_of = {
        path.relative_to(SOURCE).as_posix(): list(opens_for_writing(ast.parse(path.read_text("utf-8"))))
        for path in SOURCE.rglob("*.py")
    }
    assert {name for name, lines in lines_of.items() if lines} == {"files.py", "diagnostics/sinks.py", "cli/scale_plot.py"}
    assert list(opens_for_writing(ast.parse("open(x, 'w'); p.open(mode='rb+'); open(x, 'rb'); p.write_text('')"))) == [1, 1, 1]


def full_disk(_):
    """Limit the size of files, like a disk that becomes full after the first bytes. Return a function that lifts the limit."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, limits[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def failing(function):
    """Return a fault that is called like `full_disk`, and makes a function of `os` raise the error of a full disk."""

    def patch(monkeypatch):
        def fail(*_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, function, fail)
        return monkeypatch.undo

    return patch


FAULTS = {"write": full_disk, "fsync": failing("fsync"), "replace": failing("replace")}
CASES = [*(("text", fault) for fault in FAULTS), *((name, "write") for name in WRITERS if name != "text")]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch, name, fault):
    """If there was no old file, none is created. No temporary file is left."""
    path = tmp_path / f"x{name}"
    WRITERS[name](path)  # imports modules, which would fail later
    path.write_bytes(OLD)
    for old_files in ({path: OLD}, {}):
        undo = FAULTS[fault](monkeypatch)
        try:
            with pytest.raises(OSError, match=r"No space left|File too large"):
                WRITERS[name](path)
        finally:
            undo()
        assert {file: file.read_bytes() for file in tmp_path.iterdir()} == old_files
        path.unlink(missing_ok=True)


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from ampscale.files import write_atomically

path, draw, stray = Path(sys.argv[1], "x"), random.Random(0), 0
contents = [b"x" * 1_000_000, b"y" * 500_000]
write_atomically(path, contents[0])
for _ in range(200):
    child = os.fork()
    while not child:
        for content in contents:
            write_atomically(path, content)
    time.sleep(draw.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.read_bytes() in contents
    for temporary in path.parent.glob(".ampscale-*.tmp"):
        temporary.unlink()
        stray += 1
print(stray)
"""


@pytest.mark.slow
def test_killed_process_leaves_a_complete_file(tmp_path):
    """200 processes are killed at random moments. Some leave a temporary file, which shows that a write was interrupted."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_mode_of_a_file_is_kept(tmp_path):
    """A new file has the default mode."""
    file, other = tmp_path / "x", tmp_path / "y"
    other.write_bytes(OLD)
    write_atomically(file, OLD)
    assert file.stat().st_mode == other.stat().st_mode
    file.chmod(0o640)
    write_atomically(file, "new")
    assert (file.stat().st_mode & 0o777, file.read_text()) == (0o640, "new")


def test_read_only_file_is_not_replaced(tmp_path, monkeypatch):
    """Replacing the file by a rename would raise no error, so the mode is checked first."""
    (tmp_path / "x").write_bytes(OLD)
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="x"):
        write_atomically(tmp_path / "x", "new")
    assert (tmp_path / "x").read_bytes() == OLD


def test_link_is_followed(tmp_path):
    """A link stays a link, even if its target does not exist yet. A loop of links raises an error."""
    link = tmp_path / "link"
    link.symlink_to("target")
    for text in ("first", "second"):
        write_atomically(link, text)
        assert link.is_symlink()
        assert (tmp_path / "target").read_text() == text
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write_atomically(tmp_path / "loop", "x")


def test_pipe_is_written_in_place(tmp_path):
    """A rename would replace the pipe by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)


def test_read_bounded_rejects_larger_files(tmp_path):
    """A file of exactly the limit is read."""
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bounded(tmp_path / "x", 5) == b"12345"
    with pytest.raises(ValueError, match="x must have at most 4 bytes, got more"):
        read_bounded(tmp_path / "x", 4)


@pytest.mark.parametrize("read", [partial(read_bounded, limit=9), read_text, from_csv])
def test_device_is_not_read(tmp_path, read):
    """Reading a device such as /dev/zero may never end."""
    device = tmp_path / "device.csv"
    device.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=f"{device} must be a file or a pipe, got a device"):
        read(device)


@pytest.mark.parametrize("read", [partial(read_bounded, limit=99), read_text, from_csv])
def test_pipe_is_read_like_a_file(tmp_path, read):
    """Shells pass the output of a command as a pipe."""
    text = b"finite\n1\n0\n"
    file, pipe = tmp_path / "file.csv", tmp_path / "pipe.csv"
    file.write_bytes(text)
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    assert repr(read(pipe)) == repr(read(file))
    writer.join()
