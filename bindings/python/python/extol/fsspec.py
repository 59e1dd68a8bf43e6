"""ext4 volumes for fsspec, and so for pandas, dask and others.

>>> import extol, fsspec, tempfile
>>> image = tempfile.mkdtemp() + "/disk.img"
>>> extol.mkfs(image, 16 << 20)
>>> with fsspec.open(f"ext4://notes.txt::{image}", "w") as file:
...     _ = file.write("hello")
>>> fsspec.filesystem("ext4", fo=image).ls("/", detail=False)
['lost+found', 'notes.txt']

`ext4://PATH::IMAGE` names a file of a volume. The image is a path or an address of the host (opened
as `extol.open` does), or a file of another file system of fsspec (`ext4://etc/motd::https://…`),
which is only read, unless it is one of `memory://`. `extol://` is the same.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat as modes
import threading
from glob import has_magic
from typing import Any, Optional

import fsspec
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from ._names import LEADS_NOWHERE, OfVolume
from ._open import open as open_volume
from ._open import read_only_options
from ._volume import Volume

_KINDS = {modes.S_IFREG: "file", modes.S_IFDIR: "directory", modes.S_IFLNK: "link"}


# The volumes that are open here, by the process, the file of the host and the options: a volume is
# opened once, however many file systems use it.
_open: dict[tuple[int, str, str], Volume] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _shared(name: str, options: str, read_only: bool) -> Volume:
    """An open volume. A request for reading is served by one that is open for writing, too."""
    kinds = (options, read_only_options(options)) if read_only else (options,)
    path = os.path.realpath(name)
    with _lock:
        for kind in kinds:
            volume = _open.get((os.getpid(), path, kind))
            if volume is not None and not volume.closed:
                return volume
        volume = open_volume(name, options, read_only=read_only)
        _open[os.getpid(), path, kinds[-1]] = volume
        return volume


def _text(path: Any) -> Any:
    """A path as text. One of a volume is refused: it may be of another one."""
    if isinstance(path, OfVolume):
        raise TypeError(f"fsspec takes paths as text, such as str({path!r})")
    return stringify_path(path)


class ExtolFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of one volume.

    `fo` is an open `extol.Volume`, what `extol.open` takes, or a file of another file system with
    `target_protocol` and `target_options`. `options` are those of `mount -o`, and `read_only` opens
    the volume so. A file that was written is durable when it is closed. The volume is closed by
    `close`, or when the program ends. There are no transactions.
    """

    protocol = ("extol", "ext4")
    root_marker = ""
    # A volume is opened once, so two instances of the same arguments are the same one, which fsspec
    # sees to. A volume that the caller has opened is shared.
    cachable = True

    def __init__(
        self,
        fo: Any = None,
        options: str = "",
        read_only: bool = False,
        target_protocol: Optional[str] = None,
        target_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        if getattr(self, "_cached", False):
            return
        super().__init__(**kwargs)
        if fo is None:
            raise ValueError("which volume? Say fo=IMAGE, or ext4://PATH::IMAGE")
        self._file = None
        self.read_only = read_only
        # How it is opened again, once another file system has closed it.
        self._again: Optional[tuple[str, str, bool]] = None
        # A volume of the caller is closed by the caller.
        self._closes = not isinstance(fo, Volume)
        if isinstance(fo, Volume):
            self._volume = fo
            return
        if isinstance(fo, (str, bytes, os.PathLike)) and target_protocol not in (None, "file"):
            mode = "rb" if read_only or target_protocol != "memory" else "r+b"
            self._file = fsspec.open(
                stringify_path(fo), mode, protocol=target_protocol, **(target_options or {})
            )
            fo = self._file.open()
        elif isinstance(fo, str) and fo.startswith("file://"):
            fo = fo[len("file://") :]
        if isinstance(fo, (str, bytes, os.PathLike)):
            self._again = (os.fsdecode(fo), options, read_only)
            self._volume = _shared(*self._again)
        else:
            self._volume = open_volume(fo, options, read_only=read_only)

    @property
    def volume(self) -> Volume:
        """The volume."""
        if self._again is not None and self._volume.closed:
            self._volume = _shared(*self._again)
        return self._volume

    def close(self) -> None:
        """Closes the volume, unless it is the caller's. Another file system of it opens it again
        when it is used; files that are open fail afterwards."""
        type(self)._cache.pop(self._fs_token, None)
        if not self._closes:
            return
        self._volume.close()
        if self._file is not None:
            self._file.close()

    def _for_writing(self) -> Volume:
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return self.volume

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = _text(path)
        return super()._strip_protocol(path).strip("/")

    def _info(self, path: str, follow: bool) -> dict[str, Any]:
        attributes, birth = self.volume._raw.stat_and_birth(os.fsencode("/" + path), follow)
        kind = _KINDS.get(modes.S_IFMT(attributes.st_mode), "other")
        return {
            "name": path,
            "size": 0 if kind == "directory" else attributes.st_size,
            "type": kind,
            "created": birth,
            "mtime": attributes.st_mtime,
            "mode": attributes.st_mode,
            "uid": attributes.st_uid,
            "gid": attributes.st_gid,
            "ino": attributes.st_ino,
            "nlink": attributes.st_nlink,
        }

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Attributes; a link has those of what it leads to, and `islink`."""
        path = self._strip_protocol(path)
        info = self._info(path, follow=False)
        info["islink"] = info["type"] == "link"
        if info["islink"]:
            try:
                info |= self._info(path, follow=True)
            except OSError as error:
                if error.errno not in LEADS_NOWHERE:
                    raise
            info["destination"] = self.volume.readlink("/" + path)
        return info

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What a directory holds; a file is itself."""
        path = self._strip_protocol(path)
        try:
            names = sorted(self.volume.listdir("/" + path))
        except NotADirectoryError:
            names = None
        if names is None:
            return [self.info(path)] if detail else [path]
        paths = [f"{path}/{name}" if path else str(name) for name in names]
        return [self.info(one) for one in paths] if detail else paths

    def exists(self, path: str, **kwargs: Any) -> bool:
        """True if there is something, be it a link that leads nowhere."""
        path = "/" + self._strip_protocol(path)
        return self.volume.exists(path) or self.volume.islink(path)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not autocommit:
            raise NotImplementedError("transactions")
        path = "/" + self._strip_protocol(path)
        volume = self.volume
        if set(mode) & set("wax+"):
            volume = self._for_writing()
            if "+" not in mode or "r" not in mode:
                self._parents(path)
        file: Any = volume.open(path, mode)
        raw = getattr(file, "raw", file)
        raw._sync_on_close = True
        return file

    def _parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        if parent.strip("/") and not self.volume.exists(parent):
            self._for_writing().makedirs(parent, exist_ok=True)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory."""
        path = "/" + self._strip_protocol(path)
        if create_parents:
            self._for_writing().makedirs(path)
        else:
            self._for_writing().mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and all that are missing above it."""
        self._for_writing().makedirs("/" + self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self._for_writing().rmdir("/" + self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self._for_writing().unlink("/" + self._strip_protocol(path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Removes files, and directories with `recursive`."""
        paths = [_text(one) for one in (path if isinstance(path, list) else [path])]
        if maxdepth is not None or any(has_magic(one) and not self.exists(one) for one in paths):
            paths = self.expand_path(paths, recursive=recursive, maxdepth=maxdepth)
        volume = self._for_writing()
        # What is below goes before what it is in.
        for one in reversed(paths):
            full = "/" + self._strip_protocol(one)
            if not volume.isdir(full) or volume.islink(full):
                volume.unlink(full)
            elif maxdepth is not None:
                volume.rmdir(full)
            elif recursive:
                if volume.exists(full):
                    volume.rmtree(full)
            else:
                raise IsADirectoryError(full)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file, or makes a directory."""
        one, other = (("/" + self._strip_protocol(path)) for path in (path1, path2))
        if self.volume.isdir(one):
            self._for_writing().makedirs(other, exist_ok=True)
            return
        volume = self.volume
        if volume.exists(other) and volume.stat(one).st_ino == volume.stat(other).st_ino:
            raise shutil.SameFileError(f"{path1} and {path2} are the same file")
        with self._open(one, "rb") as source, self._open(other, "wb") as target:
            while data := source.read(1 << 20):
                target.write(data)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Renames."""
        other = "/" + self._strip_protocol(path2)
        self._parents(other)
        self._for_writing().rename("/" + self._strip_protocol(path1), other)

    def mv(self, path1: str, path2: str, recursive: bool = False, **kwargs: Any) -> None:
        """Renames a file or a directory; into a directory that is there."""
        one, other = (("/" + self._strip_protocol(path)) for path in (path1, path2))
        if self.volume.isdir(other) and not self.volume.isdir(one):
            other = os.path.join(other, os.path.basename(one))
        self._parents(other)
        self._for_writing().rename(one, other)

    def created(self, path: str) -> Any:
        """When it was made, or its attributes were changed last."""
        return self._time(path, "created")

    def modified(self, path: str) -> Any:
        """When its contents were changed last."""
        return self._time(path, "mtime")

    def _time(self, path: str, which: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp(
            self.info(path)[which], tz=datetime.timezone.utc
        )

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file, or empties or renews the one that is there."""
        full = "/" + self._strip_protocol(path)
        if not truncate and self.volume.exists(full):
            self._for_writing().utime(full)
            return
        self._open(full, "wb").close()
