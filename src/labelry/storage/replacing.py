"""Replace a directory whole or not at all, and read one whole while others replace it.

Files are written to a hidden sibling directory (``.NAME.labelry-tmp-*``) and synced. Then one
rename puts it in place. To replace another, the two directories are exchanged in one step (Linux
``renameat2``) and the old one, now under the hidden name, is deleted. If the system cannot exchange
names, the old one is first moved to ``.NAME.labelry-old``. A crash before the new one is in place
leaves only that directory. Readers then take it, and the next writer first moves it back.

A writer holds a lock (``flock``) on its hidden directory; the lock ends with the process. So a
hidden directory without a lock was left by a crash, and the next writer to that path deletes it.
The parent directory is locked while names change, so that writers of one path take turns. Without
``flock``, as on Windows, they must not write to one path at a time, and what a crash left stays.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from labelry.errors import ModelError
from labelry.storage.sealed import reason

T = TypeVar("T")
Check = Callable[[Path], None]  # raises an error unless the path may be replaced


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, and wait until it is on the disk."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until the content of a file or directory is on the disk, where the system can."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        if os.path.isdir(path):  # Windows opens no directories
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some filesystems cannot sync a directory; Windows cannot sync what is open for reading.
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def read_stable(path: str | os.PathLike[str], read: Callable[[Path], T]) -> T:
    """Return ``read(directory)`` of a model; read again if the model was replaced meanwhile."""
    while True:
        located = _locate(path)
        try:
            result = read(located[0])
        except (ModelError, OSError) as error:
            if _locate(path) != located:
                continue
            if isinstance(error, ModelError):
                raise
            where = error.filename or located[0]
            raise ModelError(f"cannot read {where}: {reason(error)}") from error
        if _locate(path) == located:
            return result


def _locate(path: str | os.PathLike[str]) -> tuple[Path, tuple[int, ...]]:
    """Return the directory to read, and an identity that changes when another replaces it."""
    target = Path(os.path.realpath(path))
    # The path is tried twice: a save may put the new model there while we look for the old one.
    for directory in (Path(path), backup_path(target), Path(path)):
        try:
            found = directory.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ModelError(f"cannot read {directory}: {reason(error)}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise ModelError(f"{directory} is a file; a labelry model is a directory")
        return directory, (found.st_dev, found.st_ino, found.st_ctime_ns)
    raise ModelError(f"there is no model at {path}: the path does not exist")


def backup_path(target: Path) -> Path:
    """Return the path where the old content of `target` may be after a crash."""
    return target.parent / f".{target.name}.labelry-old"


@contextmanager
def staged(target: Path, check: Check) -> Iterator[Path]:
    """Yield a new hidden directory beside `target`; at the end what has its name is deleted."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.labelry-tmp-"
    staging = target.parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        with locked(target.parent):
            _recover(target)
            for sibling in target.parent.iterdir():
                if sibling.name.startswith(prefix):
                    _remove_abandoned(sibling)
            check(target)
            staging.mkdir()
            stack.callback(shutil.rmtree, staging, ignore_errors=True)
            stack.enter_context(locked(staging))
        yield staging


@contextmanager
def locked(directory: Path, *, wait: bool = True) -> Iterator[bool | None]:
    """Hold the lock of a directory.

    Yields False if another process has it; None on a filesystem without such locks, as some network
    filesystems are.
    """
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield None
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        held: bool | None = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            held = False
        except OSError:
            held = None
        yield held
    finally:
        os.close(descriptor)


def _remove_abandoned(staging: Path) -> None:
    # An error must not prevent the save: the owner may be deleting it, or be another user.
    with suppress(OSError), locked(staging, wait=False) as held:
        if held:
            shutil.rmtree(staging, ignore_errors=True)


def _recover(target: Path) -> None:
    """Repair what a crashed `_swap` left; call it with the parent locked."""
    if not backup_path(target).exists():
        return
    if target.exists():
        shutil.rmtree(backup_path(target))
    else:
        os.rename(backup_path(target), target)


def put_in_place(staging: Path, target: Path, check: Check) -> None:
    """Give the finished directory its name; an old model takes the name of `staging`."""
    with locked(target.parent):
        _recover(target)
        check(target)
        if target.exists() and os.listdir(target):
            if not _exchange(staging, target):
                _swap(staging, target)
        else:
            with suppress(OSError):
                target.rmdir()  # Windows does not replace an empty directory
            os.rename(staging, target)
        sync(target.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False if the system or the filesystem cannot."""
    try:
        rename = getattr(ctypes.CDLL(None), "renameat2", None)
    except (OSError, TypeError):  # Windows has no such library
        return False
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE in <fcntl.h>, <linux/fs.h>
    return rename is not None and rename(at_cwd, bytes(a), at_cwd, bytes(b), exchange) == 0


def _swap(staging: Path, target: Path) -> None:
    """Exchange two names in steps; `_recover` and `_locate` repair them after a crash."""
    os.rename(target, backup_path(target))
    try:
        os.rename(staging, target)
    except OSError:
        os.rename(backup_path(target), target)
        raise
    os.rename(backup_path(target), staging)
