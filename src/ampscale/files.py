"""Reading and writing of files: bounded when read, whole or absent when written."""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """
    Write a file so that its path names the old file or the whole new one at every moment, also after a crash.

    The data go to a temporary file in the same folder, which then replaces *path*. The mode of an existing file is kept, and a
    symbolic link is followed. A device or a pipe, which cannot be replaced, is written directly.

    Args:
        path: The file.
        data: Its bytes, or its text, which is encoded in UTF-8.

    Raises:
        OSError: The file cannot be written. It is unchanged, and no temporary file is left.

    >>> write_atomically("/dev/null", "text")
    """
    target = Path(os.path.realpath(path))
    content = data.encode() if isinstance(data, str) else data
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        target.write_bytes(content)
        return
    temporary = target.with_name(f".ampscale-{secrets.token_hex(8)}.tmp")
    try:
        _write_synced(temporary, content)
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        os.replace(temporary, target)
    except OSError as error:
        # The caller knows nothing of the temporary file.
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def read_bounded(path: str | os.PathLike[str], limit: int) -> bytes:
    """
    Return the bytes of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has more than *limit* bytes, or is a device.
    """
    check_regular(path, limit)
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # it has grown since
        raise ValueError(f"{path} must have at most {limit} bytes, got more")
    return data


def check_regular(path: str | os.PathLike[str], limit: int | None = None) -> None:
    """
    Check a file before it is opened: a device may never end. A pipe may be read, once.

    Raises:
        OSError: There is no such file.
        ValueError: It is a device, or has more than *limit* bytes.
    """
    status = os.stat(path)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise ValueError(f"{path} must be a file or a pipe, got a device")
    if limit is not None and stat.S_ISREG(status.st_mode) and status.st_size > limit:
        raise ValueError(f"{path} must have at most {limit} bytes, got more")


def _mode(target: Path) -> int | None:
    """Return the mode of an existing file, and raise an error if it is read-only: a rename would replace it all the same."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return mode


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power failure. Some systems cannot synchronize a folder; the file is whole there as well."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
