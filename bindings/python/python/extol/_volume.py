"""Volumes, with the functions of `os`."""

from __future__ import annotations

import errno
import io
import os
import stat as modes
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from . import _extol
from ._file import File, _raw_bytes

if TYPE_CHECKING:
    from types import TracebackType

    from ._path import Path

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_RENAME_EXCHANGE = 2

# The path is not one of a file that is there.
_LEADS_NOWHERE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


class StatVfs(NamedTuple):
    """Sizes of a volume, with the names of `os.statvfs`."""

    f_bsize: int
    f_frsize: int
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_files: int
    f_ffree: int
    f_favail: int
    f_namemax: int


class DirEntry:
    """An entry of a directory, with the names of `os.DirEntry`."""

    __slots__ = ("_ino", "_kind", "_volume", "name", "path")

    def __init__(
        self, volume: Volume, name: Union[str, bytes], path: Union[str, bytes], ino: int, kind: int
    ) -> None:
        self._volume, self._ino, self._kind = volume, ino, kind
        self.name = name
        """The name alone."""
        self.path = path
        """The path that the directory was given by, and the name."""

    def __fspath__(self) -> Union[str, bytes]:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        """The inode number."""
        return self._ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes."""
        return self._volume.stat(self.path, follow_symlinks=follow_symlinks)

    def _is(self, kind: int, follow_symlinks: bool) -> bool:
        if self._kind and not (follow_symlinks and modes.S_ISLNK(self._kind)):
            return modes.S_IFMT(self._kind) == kind
        try:
            return modes.S_IFMT(self.stat(follow_symlinks=follow_symlinks).st_mode) == kind
        except OSError as error:
            if error.errno in _LEADS_NOWHERE:
                return False
            raise

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """True for a directory."""
        return self._is(modes.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """True for a regular file."""
        return self._is(modes.S_IFREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """True for a symbolic link."""
        return self._is(modes.S_IFLNK, False)


class _Entries:
    """What `scandir` gives: an iterator that `with` takes."""

    def __init__(self, entries: Iterator[DirEntry]) -> None:
        self._entries = entries

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more comes."""
        self._entries = iter(())


def open(  # noqa: A001
    name: Any, options: str = "", *, read_only: bool = False
) -> Volume:
    """Opens a volume: a disk image, a block device, a partition of one (`"disk.img:2"`), a tag
    (`"LABEL=data"`), an address (`"nbd://host/export"`), or an open binary file that can be sought.

    A journal with work in it is replayed; with `read_only` that is done in memory if the device is
    not to be written. `options` are those of `mount -o`.
    """
    is_file = hasattr(name, "seek") and hasattr(name, "read")
    writable = not read_only and (not is_file or name.writable())
    if not writable:
        options = _read_only(options)
    if not is_file:
        return Volume(_extol.RawVolume.open(os.fsencode(name), options))
    if (path := _path_of(name)) is not None:
        if writable:
            name.flush()
        return Volume(_extol.RawVolume.open(path, options))
    size = name.seek(0, io.SEEK_END)
    return Volume(_extol.RawVolume.of_file(name, size, writable, options))


def _read_only(options: str) -> str:
    """These options, for reading."""
    return f"ro,{options}" if options else "ro"


def _path_of(file: Any) -> Optional[bytes]:
    """A way to the file or device of the host that a file object is, which is used by itself then:
    it is locked, and made durable, as one that is opened by its name."""
    try:
        number = file.fileno()
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    return b"/proc/self/fd/%d" % number if modes.S_ISREG(mode) or modes.S_ISBLK(mode) else None


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

    def path(self, *parts: Union[str, os.PathLike[str]]) -> Path:
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

    def open(
        self,
        path: StrPath,
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
        text = "b" not in mode
        what = [mark for mark in mode if mark in "rwax"]
        if len(set(mode)) != len(mode) or set(mode) - set("rwaxbt+") or len(what) != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        if not text and "t" in mode:
            raise ValueError("can't have text and binary mode at once")
        how = what[0] + ("+" if "+" in mode else "")
        if not text and (encoding, errors, newline) != (None, None, None):
            raise ValueError("binary mode takes no encoding, errors and newline")
        if text and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        raw = File._open(self, os.fsencode(path), how, permissions, path)
        try:
            file: Any = raw
            line_buffering = text and buffering == 1
            if buffering != 0:
                size = buffering if buffering > 1 else 128 << 10
                if "+" in how:
                    file = io.BufferedRandom(raw, size)
                elif how[0] == "r":
                    file = io.BufferedReader(raw, size)
                else:
                    file = io.BufferedWriter(raw, size)
            if text:
                encoding = encoding or "utf-8"
                file = io.TextIOWrapper(file, encoding, errors, newline, line_buffering)
                file.mode = mode
            if file is not raw:
                self._files.add(file)
            return file
        except BaseException:
            raw.close()
            raise

    def stat(self, path: StrPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as of `os.stat`."""
        return self._raw.stat(os.fsencode(path), follow_symlinks)

    def lstat(self, path: StrPath) -> os.stat_result:
        """Attributes of a link itself."""
        return self.stat(path, follow_symlinks=False)

    def statvfs(self) -> StatVfs:
        """Sizes of the volume."""
        block, blocks, free, available, inodes, free_inodes, name_max = self._raw.statfs()
        return StatVfs(
            block, block, blocks, free, available, inodes, free_inodes, free_inodes, name_max
        )

    def exists(self, path: StrPath) -> bool:
        """True if the path leads to something."""
        return self._kind(path) is not None

    def isdir(self, path: StrPath) -> bool:
        """True for a directory, or a link to one."""
        return self._kind(path) == modes.S_IFDIR

    def isfile(self, path: StrPath) -> bool:
        """True for a regular file, or a link to one."""
        return self._kind(path) == modes.S_IFREG

    def islink(self, path: StrPath) -> bool:
        """True for a symbolic link."""
        return self._kind(path, follow_symlinks=False) == modes.S_IFLNK

    def _kind(self, path: StrPath, *, follow_symlinks: bool = True) -> Optional[int]:
        try:
            return modes.S_IFMT(self.stat(path, follow_symlinks=follow_symlinks).st_mode)
        except OSError as error:
            if error.errno in _LEADS_NOWHERE:
                return None
            raise

    def scandir(self, path: StrPath = "/") -> _Entries:
        """Entries of a directory, without "." and ".."."""
        path = os.fspath(path)
        found = self._raw.entries(os.fsencode(path))

        def entries() -> Iterator[DirEntry]:
            for raw, ino, kind in found:
                if isinstance(path, bytes):
                    yield DirEntry(self, raw, os.path.join(path, raw), ino, kind)
                else:
                    name = os.fsdecode(raw)
                    yield DirEntry(self, name, os.path.join(path, name), ino, kind)

        return _Entries(entries())

    def listdir(self, path: StrPath = "/") -> list[Any]:
        """Names in a directory."""
        names = (name for name, _, _ in self._raw.entries(os.fsencode(path)))
        if isinstance(os.fspath(path), bytes):
            return list(names)
        return [os.fsdecode(name) for name in names]

    def walk(
        self, top: StrPath = "/", topdown: bool = True, followlinks: bool = False
    ) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """Directories below `top`: their paths, the names of directories in them, and those of
        other files, as of `os.walk`. A directory that cannot be read raises."""
        stack: list[Any] = [os.fspath(top)]
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

    def mkdir(self, path: StrPath, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._raw.mkdir(os.fsencode(path), mode)

    def makedirs(self, path: StrPath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Makes a directory and all that are missing above it."""
        raw = os.fsencode(path)
        above = os.path.dirname(raw.rstrip(b"/"))
        if above.strip(b"/") and not self.exists(above):
            self.makedirs(above, exist_ok=True)
        try:
            self._raw.mkdir(raw, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(raw):
                raise

    def mknod(self, path: StrPath, mode: int = 0o600 | modes.S_IFREG, device: int = 0) -> None:
        """Makes a device file, a named pipe, a socket or an empty file."""
        self._raw.mknod(os.fsencode(path), mode, os.major(device), os.minor(device))

    def unlink(self, path: StrPath) -> None:
        """Removes the name of a file."""
        self._raw.unlink(os.fsencode(path))

    remove = unlink

    def rmdir(self, path: StrPath) -> None:
        """Removes an empty directory."""
        self._raw.rmdir(os.fsencode(path))

    def rmtree(self, path: StrPath) -> None:
        """Removes whatever a path names, a directory with all that is in it. Links are not
        followed."""
        self._raw.remove_all(os.fsencode(path))

    def rename(self, src: StrPath, dst: StrPath) -> None:
        """Renames, and replaces a file or an empty directory that has the name."""
        self._raw.rename(os.fsencode(src), os.fsencode(dst), 0)

    replace = rename

    def exchange(self, one: StrPath, other: StrPath) -> None:
        """Exchanges two names."""
        self._raw.rename(os.fsencode(one), os.fsencode(other), _RENAME_EXCHANGE)

    def link(self, src: StrPath, dst: StrPath) -> None:
        """Gives a file a second name, `dst`."""
        self._raw.link(os.fsencode(src), os.fsencode(dst))

    def symlink(self, src: StrPath, dst: StrPath) -> None:
        """Makes a symbolic link `dst` to `src`."""
        self._raw.symlink(os.fsencode(src), os.fsencode(dst))

    def readlink(self, path: StrPath) -> Any:
        """The target of a symbolic link."""
        target = self._raw.readlink(os.fsencode(path))
        return target if isinstance(os.fspath(path), bytes) else os.fsdecode(target)

    def chmod(self, path: StrPath, mode: int) -> None:
        """Sets the permission bits."""
        self._raw.chmod(os.fsencode(path), mode)

    def chown(
        self, path: StrPath, uid: int = -1, gid: int = -1, *, follow_symlinks: bool = True
    ) -> None:
        """Sets owner and group; -1 leaves one alone."""
        owner, group = (None if number == -1 else number for number in (uid, gid))
        self._raw.chown(os.fsencode(path), owner, group, follow_symlinks)

    def utime(
        self,
        path: StrPath,
        times: Optional[tuple[float, float]] = None,
        *,
        ns: Optional[tuple[int, int]] = None,
    ) -> None:
        """Sets the times of last access and of the last change, as of `os.utime`."""
        if times is not None and ns is not None:
            raise ValueError("times and ns cannot be used at once")
        if times is not None:
            ns = (int(times[0] * 1e9), int(times[1] * 1e9))
        self._raw.utime(os.fsencode(path), ns)

    def truncate(self, path: StrPath, length: int) -> None:
        """Sets the size of a file."""
        with self.open(path, "r+b", buffering=0) as file:
            file.truncate(length)

    def getxattr(self, path: StrPath, attribute: Union[str, bytes]) -> bytes:
        """The value of an extended attribute, by its full name (`"user.x"`)."""
        return self._raw.getxattr(os.fsencode(path), os.fsencode(attribute))

    def setxattr(
        self, path: StrPath, attribute: Union[str, bytes], value: bytes, flags: int = 0
    ) -> None:
        """Sets an extended attribute; `flags` as of `os.setxattr`."""
        raw = _raw_bytes(value)
        self._raw.setxattr(os.fsencode(path), os.fsencode(attribute), raw, flags)

    def listxattr(self, path: StrPath) -> list[str]:
        """Full names of all extended attributes."""
        return [os.fsdecode(name) for name in self._raw.listxattr(os.fsencode(path))]

    def removexattr(self, path: StrPath, attribute: Union[str, bytes]) -> None:
        """Removes an extended attribute."""
        self._raw.removexattr(os.fsencode(path), os.fsencode(attribute))

    def read_bytes(self, path: StrPath) -> bytes:
        """The contents of a file."""
        with self.open(path, "rb", buffering=0) as file:
            data: bytes = file.read()
            return data

    def write_bytes(self, path: StrPath, data: bytes) -> int:
        """Makes a file of these contents, or replaces those of the one that is there."""
        with self.open(path, "wb") as file:
            return int(file.write(data))
