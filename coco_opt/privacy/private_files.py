"""Files for their owner's eyes only, complete or absent whenever the machine stops.

Bookkeeping files are small records with a checksum. Any fault in a record raises one error, which names the file, says
what to restore, and that resuming costs nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place, system_errors_as

Chunk = bytes | memoryview
FREE = "What was paid for stays paid: once this is put right, the same command goes on for free"
_TEMPORARY = ".partial"
_WEEK = 7 * 24 * 3600.0


def write_private(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write a new file of mode 0600 that appears by one rename once it is on disk, and so is its name.

    Raises InputError (file-exists, cannot-write); a file that is there is never replaced, so one writer at a
    time must be ensured by the caller.
    """
    _refuse_existing(path)
    _write(path, chunks, _name)


def replace_private(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write a file of mode 0600 in the place of an older file, durably: a reader sees either file, complete.

    Raises InputError (cannot-write).
    """
    _write(path, chunks, Path.replace)


def _write(path: Path, chunks: Iterable[Chunk], name: Callable[[Path, Path], object]) -> None:
    """Write a file under another name, give it its own by ``name`` once it is on disk, and make that durable."""
    with system_errors_as(partial(_cannot, "the private file could not be written", path)), building(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        name(temporary, path)
        sync_folder(path.parent)


def _cannot(what: str, path: Path, reason: str) -> InputError:
    return InputError("cannot-write", f"{what}: {reason}. {FREE}", Place(path.name))


def _name(temporary: Path, path: Path) -> None:
    """Give a written file its name, and never another file's: a rename would replace it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        _refuse_existing(path)
        raise  # removed since: another writer is at work
    except OSError:  # a file system without links
        _refuse_existing(path)
        temporary.rename(path)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError("file-exists", "exists already: private records are never overwritten", Place(path.name))


def erase_private(path: Path, *, keep_name: bool = False) -> None:
    """Overwrite a small file with zeros on disk and remove it; nothing happens where it is absent.

    With ``keep_name`` the zeros stay under its name. Raises InputError (cannot-write), also where it is a link, whose
    target is another file. A file system that copies on write, or a flash drive, may keep old blocks: encrypt the disk
    where that matters.
    """
    if not os.path.lexists(path):
        return
    with system_errors_as(partial(_cannot, "could not be erased", path)):
        if reason := foreign(path):
            raise _cannot("could not be erased", path, reason)
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        if not keep_name:
            path.unlink()
            sync_folder(path.parent)


def temporary_name(path: Path) -> Path:
    """Return where a file or folder is built before it appears: a name of this process that no other writer takes."""
    return path.parent / f".{path.name}.{_machine()}-{os.getpid()}.{secrets.token_hex(8)}{_TEMPORARY}"


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what interrupted processes left half-built in a folder, of one name or all; who lives keeps their own.

    Whether a process of another machine or container lives is not known here: what it left goes after a week.
    """
    named = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{named}\.([0-9a-f]{{16}})-(\d+)\.[0-9a-f]{{16}}{re.escape(_TEMPORARY)}")
    for path in folder.iterdir() if folder.is_dir() else ():
        if (built := pattern.fullmatch(path.name)) is None:
            continue
        if _is_old(path) if built[1] != _machine() else not _is_running(int(built[2])):
            remove(path)


def _machine() -> str:
    """Return what tells processes of equal numbers apart: the machine, its boot and its container, hexadecimal."""
    spaces = [platform.node()]
    with suppress(OSError):  # Linux alone has these
        spaces += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    return hashlib.sha256("\0".join(spaces).encode()).hexdigest()[:16]


def _is_old(path: Path) -> bool:
    with suppress(OSError):  # its owner may have removed it meanwhile
        return time.time() - path.lstat().st_mtime > _WEEK
    return False


def remove(path: Path) -> None:
    """Remove a file or a folder, if one is there and can be."""
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """Yield where a file or folder is built before it gets its name; what is left there in the end is removed."""
    temporary = temporary_name(path)
    try:
        yield temporary
    finally:
        remove(temporary)


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 would end it
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a no-op where folders cannot be opened (Windows)."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_folder(folder: Path) -> None:
    """Make a folder of mode 0700 in an existing folder, durably; it may exist already.

    Raises InputError (foreign-file) where it cannot be made, is a link, or is not its user's alone.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)
        reason = foreign(folder)
    except OSError as error:
        reason = f"cannot be made: {error.strerror}"
    if reason:
        raise InputError("foreign-file", f"{reason}. {FREE}", Place(folder.name))


def foreign(path: Path) -> str:
    """Return why a private file or folder is not its user's alone (a link, another owner, open to others), or "".

    Nothing is known of a path where nothing is. Raises OSError where it cannot be looked at.
    """
    if os.name != "posix" or not os.path.lexists(path):
        return ""
    seen = path.lstat()
    if stat.S_ISLNK(seen.st_mode):
        return "is a link: put the file or folder itself there"
    if seen.st_uid != os.geteuid():
        return "belongs to another user: run as its owner"
    if stat.S_IMODE(seen.st_mode) & 0o077:
        return f"others can read it: run chmod {'700' if stat.S_ISDIR(seen.st_mode) else '600'} on it"
    return ""


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or lies in it, by whatever links and names; neither must exist."""
    inner, outer = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    with suppress(OSError):  # nothing is there
        if any(outer.samefile(up) for up in filter(os.path.exists, (inner, *inner.parents))):
            return True
    return inner.is_relative_to(outer)


class FileLock:
    """A lock on a file that ends with the process holding it, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool = False) -> bool:
        """Take the lock, or return False where another process (or another lock object) holds it.

        With ``wait``, once the other gives it back.
        """
        with system_errors_as(partial(_cannot, "cannot be opened", self._path)):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if not _lock(descriptor, wait=wait):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int, *, wait: bool) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


_MARK = b"coco-opt record 1 "


def write_record(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a record durably, for its owner's eyes only; an older record stays, and is an error, unless ``replace``.

    Raises InputError (file-exists, cannot-write).
    """
    chunks = [_MARK, hashlib.sha256(content).hexdigest().encode(), b"\n", content]
    (replace_private if replace else write_private)(path, chunks)


def read_record(path: Path) -> bytes:
    """Return the content of a record; raise InputError: foreign-file, cannot-read, damaged-file."""
    code, reason = "foreign-file", ""
    try:
        reason = foreign(path)
        if not reason:
            head, _, content = path.read_bytes().partition(b"\n")
            if head == _MARK + hashlib.sha256(content).hexdigest().encode():
                return content
            code, reason = "damaged-file", "is not what was written: restore it from a copy of the private folder"
    except OSError as error:
        code, reason = "cannot-read", f"cannot be read: {error.strerror}"
    raise InputError(code, f"{reason}. {FREE}", Place(f"{path.parent.name}/{path.name}"))


def write_values(path: Path, values: Mapping[str, Any], *, replace: bool = False) -> None:
    """Write a record of JSON-able values; raises as ``write_record`` does."""
    write_record(path, json.dumps(dict(values), indent=2, sort_keys=True).encode(), replace=replace)


def read_values(path: Path) -> dict[str, Any]:
    """Return the values of a record; raises as ``read_record`` does."""
    return dict(json.loads(read_record(path)))
