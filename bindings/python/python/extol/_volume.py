"""Volumes, with the functions of `os`."""

from __future__ import annotations

import io
import os
import stat as modes
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, overload

from . import _extol
from ._entries import DirEntry, Entries, StatVfs
from ._file import File, _raw_bytes
from ._names import LEADS_NOWHERE, StrVolumePath, VolumePath, text

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import (
        OpenBinaryMode,
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
    )

    from ._path import Path

_RENAME_EXCHANGE = 2

def _finish(
    raw: _extol.RawVolume,
    files: weakref.WeakSet[Any],
    handles: weakref.WeakSet[_extol.RawFile],
    process: int,
) -> None:
    """Closes a volume; what its files have in their buffers is written before. (Not in a child of
    the process that opened it, which has none of its threads.)"""
    if os.getpid() != process:
        return
    failed: Optional[BaseException] = None
    for file in list(files):
        try:
            if not file.closed and file.writable():
                file.flush()
        except Exception as error:
            failed = failed or error
    try:
        raw.close()
    finally:
        # They would hold the device.
        for handle in list(handles):
            handle.close()
    if failed is not None:
        raise failed


class Volume:
    """An open volume. It is made by `extol.open`, and closed by `with`, `close`, or at last when it
    is forgotten."""

    def __init__(self, raw: _extol.RawVolume) -> None:
        self._raw = raw
        # Those that have a buffer, and text files.
        self._files: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handles: weakref.WeakSet[_extol.RawFile] = weakref.WeakSet()
        # (Also when the program ends, before the interpreter is taken apart.)
        self._end = weakref.finalize(
            self, _finish, raw, self._files, self._handles, os.getpid()
        )

    def __enter__(self) -> Volume:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<extol.Volume {'closed' if self.closed else 'open'}>"

    def close(self) -> None:
        """Writes everything, also what open files have in their buffers, and closes the volume.
        Files that are open fail afterwards."""
        self._end()

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._raw.closed

    @property
    def read_only(self) -> bool:
        """True if nothing may be changed."""
        return self._raw.read_only

    def sync(self) -> None:
        """Makes everything durable."""
        self._raw.sync()

    def _bytes(self, path: VolumePath) -> bytes:
        return os.fsencode(text(self, path))

    def path(self, *parts: StrVolumePath) -> Path:
        """A path on this volume, with the methods of `pathlib.Path`.

        >>> import extol, tempfile
        >>> image = tempfile.mkdtemp() + "/disk.img"
        >>> extol.mkfs(image, 16 << 20)
        >>> volume = extol.open(image)
        >>> volume.path("/etc").mkdir()
        >>> (volume.path("/etc") / "motd").write_text("hello")
        5
        """
        from ._path import Path

        return Path(self, *parts)

    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenTextMode = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryMode,
        buffering: Literal[0],
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        permissions: int = 0o644,
    ) -> File: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryModeUpdating,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        permissions: int = 0o644,
    ) -> io.BufferedRandom: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryModeWriting,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        permissions: int = 0o644,
    ) -> io.BufferedWriter: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryModeReading,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        permissions: int = 0o644,
    ) -> io.BufferedReader: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryMode,
        buffering: int = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        permissions: int = 0o644,
    ) -> Union[File, io.BufferedIOBase]: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: str,
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> Any: ...
    def open(
        self,
        path: VolumePath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> Any:
        """Opens a file, as the function `open` does. A file that is made gets `permissions`, and
        belongs to root.

        What was written is on the volume when the file is closed, and durable after `sync`, or
        after `fsync` of the file without a buffer (`buffering=0`, or `file.raw` of a binary file
        that was flushed).
        """
        is_text = "b" not in mode
        what = [mark for mark in mode if mark in "rwax"]
        if len(set(mode)) != len(mode) or set(mode) - set("rwaxbt+") or len(what) != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        if not is_text and "t" in mode:
            raise ValueError("can't have text and binary mode at once")
        how = what[0] + ("+" if "+" in mode else "")
        if not is_text and (encoding, errors, newline) != (None, None, None):
            raise ValueError("binary mode takes no encoding, errors and newline")
        if is_text and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        raw = File._open(self, self._bytes(path), how, permissions, path)
        try:
            file: Any = raw
            line_buffering = is_text and buffering == 1
            if buffering != 0:
                size = buffering if buffering > 1 else 128 << 10
                if "+" in how:
                    file = io.BufferedRandom(raw, size)
                elif how[0] == "r":
                    file = io.BufferedReader(raw, size)
                else:
                    file = io.BufferedWriter(raw, size)
            if is_text:
                encoding = encoding or "utf-8"
                file = io.TextIOWrapper(file, encoding, errors, newline, line_buffering)
                file.mode = mode
            if file is not raw:
                self._files.add(file)
            return file
        except BaseException:
            raw.close()
            raise

    def stat(self, path: VolumePath, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as of `os.stat`."""
        return self._raw.stat(self._bytes(path), follow_symlinks)

    def lstat(self, path: VolumePath) -> os.stat_result:
        """Attributes of a link itself."""
        return self.stat(path, follow_symlinks=False)

    def statvfs(self) -> StatVfs:
        """Sizes of the volume."""
        block, blocks, free, available, inodes, free_inodes, name_max = self._raw.statfs()
        return StatVfs(
            block, block, blocks, free, available, inodes, free_inodes, free_inodes, name_max
        )

    def exists(self, path: VolumePath) -> bool:
        """True if the path leads to something."""
        return self._kind(path) is not None

    def isdir(self, path: VolumePath) -> bool:
        """True for a directory, or a link to one."""
        return self._kind(path) == modes.S_IFDIR

    def isfile(self, path: VolumePath) -> bool:
        """True for a regular file, or a link to one."""
        return self._kind(path) == modes.S_IFREG

    def islink(self, path: VolumePath) -> bool:
        """True for a symbolic link."""
        return self._kind(path, follow_symlinks=False) == modes.S_IFLNK

    def _kind(self, path: VolumePath, *, follow_symlinks: bool = True) -> Optional[int]:
        try:
            return modes.S_IFMT(self.stat(path, follow_symlinks=follow_symlinks).st_mode)
        except OSError as error:
            if error.errno in LEADS_NOWHERE:
                return None
            raise

    def scandir(self, path: VolumePath = "/") -> Entries:
        """Entries of a directory, without "." and ".."."""
        path = text(self, path)
        found = self._raw.entries(self._bytes(path))

        def entries() -> Iterator[DirEntry]:
            for raw, ino, kind in found:
                if isinstance(path, bytes):
                    yield DirEntry(self, raw, os.path.join(path, raw), ino, kind)
                else:
                    name = os.fsdecode(raw)
                    yield DirEntry(self, name, os.path.join(path, name), ino, kind)

        return Entries(entries())

    def listdir(self, path: VolumePath = "/") -> list[Any]:
        """Names in a directory."""
        names = (name for name, _, _ in self._raw.entries(self._bytes(path)))
        if isinstance(text(self, path), bytes):
            return list(names)
        return [os.fsdecode(name) for name in names]

    def walk(
        self, top: VolumePath = "/", topdown: bool = True, followlinks: bool = False
    ) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """Directories below `top`: their paths, the names of directories in them, and those of
        other files, as of `os.walk`. A directory that cannot be read raises."""
        stack: list[Any] = [text(self, top)]
        while stack:
            here = stack.pop()
            if isinstance(here, tuple):
                yield here
                continue
            dirs: list[Any] = []
            files: list[Any] = []
            for entry in self.scandir(here):
                (dirs if entry.is_dir(follow_symlinks=True) else files).append(entry.name)
            if topdown:
                yield here, dirs, files
            else:
                stack.append((here, dirs, files))
            for name in reversed(dirs):
                below = os.path.join(here, name)
                if followlinks or not self.islink(below):
                    stack.append(below)

    def mkdir(self, path: VolumePath, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._raw.mkdir(self._bytes(path), mode)

    def makedirs(self, path: VolumePath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Makes a directory and all that are missing above it."""
        raw = self._bytes(path)
        above = os.path.dirname(raw.rstrip(b"/"))
        if above.strip(b"/") and not self.exists(above):
            self.makedirs(above, exist_ok=True)
        try:
            self._raw.mkdir(raw, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(raw):
                raise

    def mknod(self, path: VolumePath, mode: int = 0o600 | modes.S_IFREG, device: int = 0) -> None:
        """Makes a device file, a named pipe, a socket or an empty file."""
        self._raw.mknod(self._bytes(path), mode, os.major(device), os.minor(device))

    def unlink(self, path: VolumePath) -> None:
        """Removes the name of a file."""
        self._raw.unlink(self._bytes(path))

    remove = unlink

    def rmdir(self, path: VolumePath) -> None:
        """Removes an empty directory."""
        self._raw.rmdir(self._bytes(path))

    def rmtree(self, path: VolumePath) -> None:
        """Removes whatever a path names, a directory with all that is in it. Links are not
        followed."""
        self._raw.remove_all(self._bytes(path))

    def rename(self, src: VolumePath, dst: VolumePath) -> None:
        """Renames, and replaces a file or an empty directory that has the name."""
        self._raw.rename(self._bytes(src), self._bytes(dst), 0)

    replace = rename

    def exchange(self, one: VolumePath, other: VolumePath) -> None:
        """Exchanges two names."""
        self._raw.rename(self._bytes(one), self._bytes(other), _RENAME_EXCHANGE)

    def link(self, src: VolumePath, dst: VolumePath) -> None:
        """Gives a file a second name, `dst`."""
        self._raw.link(self._bytes(src), self._bytes(dst))

    def symlink(self, src: VolumePath, dst: VolumePath) -> None:
        """Makes a symbolic link `dst` to `src`."""
        self._raw.symlink(self._bytes(src), self._bytes(dst))

    def readlink(self, path: VolumePath) -> Any:
        """The target of a symbolic link."""
        target = self._raw.readlink(self._bytes(path))
        return target if isinstance(text(self, path), bytes) else os.fsdecode(target)

    def chmod(self, path: VolumePath, mode: int) -> None:
        """Sets the permission bits."""
        self._raw.chmod(self._bytes(path), mode)

    def chown(
        self, path: VolumePath, uid: int = -1, gid: int = -1, *, follow_symlinks: bool = True
    ) -> None:
        """Sets owner and group; -1 leaves one alone."""
        owner, group = (None if number == -1 else number for number in (uid, gid))
        self._raw.chown(self._bytes(path), owner, group, follow_symlinks)

    def utime(
        self,
        path: VolumePath,
        times: Optional[tuple[float, float]] = None,
        *,
        ns: Optional[tuple[int, int]] = None,
    ) -> None:
        """Sets the times of last access and of the last change, as of `os.utime`."""
        if times is not None and ns is not None:
            raise ValueError("times and ns cannot be used at once")
        if times is not None:
            ns = (int(times[0] * 1e9), int(times[1] * 1e9))
        self._raw.utime(self._bytes(path), ns)

    def truncate(self, path: VolumePath, length: int) -> None:
        """Sets the size of a file."""
        with self.open(path, "r+b", buffering=0) as file:
            file.truncate(length)

    def getxattr(self, path: VolumePath, attribute: Union[str, bytes]) -> bytes:
        """The value of an extended attribute, by its full name (`"user.x"`)."""
        return self._raw.getxattr(self._bytes(path), os.fsencode(attribute))

    def setxattr(
        self, path: VolumePath, attribute: Union[str, bytes], value: bytes, flags: int = 0
    ) -> None:
        """Sets an extended attribute; `flags` as of `os.setxattr`."""
        raw = _raw_bytes(value)
        self._raw.setxattr(self._bytes(path), os.fsencode(attribute), raw, flags)

    def listxattr(self, path: VolumePath) -> list[str]:
        """Full names of all extended attributes."""
        return [os.fsdecode(name) for name in self._raw.listxattr(self._bytes(path))]

    def removexattr(self, path: VolumePath, attribute: Union[str, bytes]) -> None:
        """Removes an extended attribute."""
        self._raw.removexattr(self._bytes(path), os.fsencode(attribute))

    def read_bytes(self, path: VolumePath) -> bytes:
        """The contents of a file."""
        with self.open(path, "rb", buffering=0) as file:
            return file.readall()

    def write_bytes(self, path: VolumePath, data: bytes) -> int:
        """Makes a file of these contents, or replaces those of the one that is there."""
        with self.open(path, "wb") as file:
            return file.write(data)
