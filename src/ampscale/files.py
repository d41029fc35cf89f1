"""Reading of files with a size limit, and atomic writing."""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """
    Write a file atomically: at every moment, even after a crash, *path* is either the old file or the complete new one.

    The data are written to a temporary file in the same folder, which then replaces *path*; text is encoded in UTF-8. The mode
    of an existing file is kept, and a symbolic link is followed. A device or a pipe, which cannot be replaced, is written
    directly.

    Raises:
        OSError: The file cannot be written. It is unchanged, and the temporary file is removed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_atomically(f"{folder}/scale.json", "1024.0")
    ...     read_bounded(f"{folder}/scale.json", limit=100)
    b'1024.0'
    """
    target = Path(os.path.realpath(path))
    content = data.encode() if isinstance(data, str) else data
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        target.write_bytes(content)
        return
    temporary = target.with_name(f".ampscale-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        os.replace(temporary, target)
    except OSError as error:
        # Report the path of the caller instead of the temporary one.
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def read_bounded(path: str | os.PathLike[str], limit: int) -> bytes:
    """
    Return the bytes of a file that has at most *limit* bytes.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has more than *limit* bytes, or is a device.
    """
    check_before_opening(path, limit)
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # the file has grown since the check, or is a pipe
        raise ValueError(f"{path} must have at most {limit} bytes, got more")
    return data


def check_before_opening(path: str | os.PathLike[str], limit: int | None = None) -> None:
    """
    Check a file before it is opened. Reject devices, since reading from one may never end, but accept pipes.

    Raises:
        OSError: The file does not exist.
        ValueError: The file is a device, or a regular file of more than *limit* bytes.
    """
    status = os.stat(os.fspath(path))  # reject an int, which would be a file descriptor
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise ValueError(f"{path} must be a file or a pipe, got a device")
    if limit is not None and stat.S_ISREG(status.st_mode) and status.st_size > limit:
        raise ValueError(f"{path} must have at most {limit} bytes, got more")


def _mode(target: Path) -> int | None:
    """Return the mode of a file, or None if it does not exist. Reject a read-only file, since a rename would replace it."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return mode


def _sync_folder(folder: Path) -> None:
    """Synchronize a folder, so that a rename survives a power failure. Ignore errors: not all systems support it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
