"""What listing a volume gives."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Union

from ._names import LEADS_NOWHERE, OfVolume, Text

if TYPE_CHECKING:
    from ._volume import Volume


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


class DirEntry(OfVolume):
    """An entry of a directory, with the names of `os.DirEntry`. Functions of its volume take it as
    a path; those of the host do not."""

    __slots__ = ("_ino", "_kind", "_volume", "name", "path")

    def __init__(
        self, volume: Volume, name: Union[str, bytes], path: Union[str, bytes], ino: int, kind: int
    ) -> None:
        self._volume, self._ino, self._kind = volume, ino, kind
        self.name = name
        """The name alone."""
        self.path = path
        """The path that the directory was given by, and the name."""

    def _place(self) -> tuple[Volume, Text]:
        return self._volume, self.path

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
            if error.errno in LEADS_NOWHERE:
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


class Entries:
    """What `scandir` gives: an iterator that `with` takes."""

    def __init__(self, entries: Iterator[DirEntry]) -> None:
        self._entries = entries

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more comes."""
        self._entries = iter(())
